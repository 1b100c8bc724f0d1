"""What dialects share: looking for clauses behind a head, for lines that are one word, and for who is speaking.

A head is the text that no message of a system lacks. Everything else is looked for within a bounded stretch behind it,
which ends at
the next head: what is missing, cut off or reworded costs only its own field, and the work stays linear whatever the
input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from memdiag.oom.model import Fields
from memdiag.oom.squeezed import Squeezed, squeeze, take
from memdiag.units import TIB, format_bytes

TINY = 1 << 12  # no accelerator is too full for less: something else refused
ABSURD = 4 * TIB  # larger than the memory of any machine that these messages come from


def stretches(text: Squeezed, head: re.Pattern[str], reach: int = 3000) -> Iterator[tuple[re.Match[str], int]]:
    """Yields each match of ``head`` and where its stretch ends: at the next head, or ``reach`` characters behind it."""
    heads = list(head.finditer(text.text))
    for match, following in zip(heads, [*heads, None][1:], strict=True):
        yield match, min(following.start() if following else len(text.text), match.end() + reach)


def gather(text: Squeezed, start: int, stop: int, clauses: Iterable[re.Pattern[str]]) -> tuple[Fields, int]:
    """Returns the fields of the clauses found between two places, the first of a name counting, and where the last clause ends."""
    fields: Fields = {}
    end = start
    for clause in clauses:
        match = clause.search(text.text, start, stop)
        if match:
            fields = take(match) | fields
            end = max(end, match.end())
    return fields, end


def runs(matches: Iterable[re.Match[str]], reach: int) -> Iterator[list[re.Match[str]]]:
    """Yields matches in groups: in a group each begins at most ``reach`` characters behind the end of the one before."""
    group: list[re.Match[str]] = []
    for match in matches:
        if group and match.start() - group[-1].end() > reach:
            yield group
            group = []
        group.append(match)
    if group:
        yield group


def whole_lines(text: Squeezed, expression: re.Pattern[str]) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Yields where lines that match ``expression`` from end to end begin and end in the squeezed text, with the match."""
    position = 0
    for line in text.lines:
        end = position + len(squeeze(line.text))
        match = expression.fullmatch(line.text.strip())
        if match:
            yield position, end, match
        position = end


def line_start(text: Squeezed, position: int) -> int:
    """Returns where the line that a position is in begins in the squeezed text."""
    start = 0
    for line in text.lines[: text.line_index(position)]:
        start += len(squeeze(line.text))
    return start


def number(fields: Fields, name: str) -> int | None:
    """Returns a whole number among ``fields``; None if it is not there."""
    value = fields.get(name)
    return value if isinstance(value, int) else None


def shown(value: int | None) -> str:
    """Returns bytes for a reason: with a unit, and exactly where that is short."""
    return format_bytes(value)


def shrinking(sizes: list[int]) -> bool:
    """Returns whether each size is smaller than the one before, as when a pool tries to take what it can get."""
    return len(sizes) > 1 and all(later < earlier for earlier, later in pairwise(sizes))


def product(shape: object) -> int:
    """Returns the number of elements of a shape."""
    elements = 1
    for size in shape if isinstance(shape, list) else []:
        elements *= size
    return elements
