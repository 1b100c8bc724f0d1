"""Shared by dialects: finding clauses after a head, one-word lines, and the speaker.

A head is text that every message of a system has. Everything else is searched within a bounded range after it, which
ends at the next head. So a missing, truncated or reworded clause only affects its own field, and the work is linear for
any input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from memdiag.oom.model import Fields
from memdiag.oom.squeezed import Squeezed, squeeze, take
from memdiag.units import format_bytes


def stretches(text: Squeezed, head: re.Pattern[str], reach: int = 3000) -> Iterator[tuple[re.Match[str], int]]:
    """Yields each match of ``head`` and the end of its range: the next head, or ``reach`` characters after it."""
    heads = list(head.finditer(text.text))
    for match, following in zip(heads, [*heads, None][1:], strict=True):
        yield match, min(following.start() if following else len(text.text), match.end() + reach)


def gather(text: Squeezed, start: int, stop: int, clauses: Iterable[re.Pattern[str]]) -> tuple[Fields, int]:
    """Returns the fields of the clauses between two positions, and the end of the last clause.

    The first value of a name wins.
    """
    fields: Fields = {}
    end = start
    for clause in clauses:
        match = clause.search(text.text, start, stop)
        if match:
            fields = take(match) | fields
            end = max(end, match.end())
    return fields, end


def runs(matches: Iterable[re.Match[str]], reach: int) -> Iterator[list[re.Match[str]]]:
    """Yields matches in groups.

    Within a group, each begins at most ``reach`` characters after the previous one's end.
    """
    group: list[re.Match[str]] = []
    for match in matches:
        if group and match.start() - group[-1].end() > reach:
            yield group
            group = []
        group.append(match)
    if group:
        yield group


def whole_lines(text: Squeezed, expression: re.Pattern[str]) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Yields start, end and match of lines that match ``expression`` completely, as positions in the squeezed text."""
    position = 0
    for line in text.lines:
        end = position + len(squeeze(line.text))
        match = expression.fullmatch(line.text.strip())
        if match:
            yield position, end, match
        position = end


def line_start(text: Squeezed, position: int) -> int:
    """Returns the start of the line that contains a position, in the squeezed text."""
    start = 0
    for line in text.lines[: text.line_index(position)]:
        start += len(squeeze(line.text))
    return start


def number(fields: Fields, name: str) -> int | None:
    """Returns a whole number among ``fields``, or None if it is missing."""
    value = fields.get(name)
    return value if isinstance(value, int) else None


def shown(value: int | None) -> str:
    """Returns bytes for a reason: with a unit, and exactly if that is short."""
    return format_bytes(value)


def shrinking(sizes: list[int]) -> bool:
    """Returns whether each size is smaller than the one before, as when a pool retries with decreasing sizes."""
    return len(sizes) > 1 and all(later < earlier for earlier, later in pairwise(sizes))


def product(shape: object) -> int:
    """Returns the number of elements of a shape."""
    elements = 1
    for size in shape if isinstance(shape, list) else []:
        elements *= size
    return elements
