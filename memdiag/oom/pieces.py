"""Lines of a block of bytes, and where places of the text that they make together lie in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

LONGEST_LINE = 4096


def starts(shapes: Sequence[bytes], hits: dict[int, int]) -> list[int]:
    """Returns where in the text that lines make together the places in them are."""
    starts = [0, *accumulate(map(len, shapes))]
    return [starts[index] + place for index, place in hits.items()]


def line_indices(lines: Sequence[tuple[int, bytes]], places: Sequence[int], dropped: bytes) -> set[int]:
    """Returns in which lines the places of a text are, which is made of the lines without newlines and what is dropped."""
    ends = list(accumulate(len(line.translate(None, dropped)) for _number, line in lines))
    return {min(bisect_right(ends, max(place, 0)), len(lines) - 1) for place in places}


def pieces(block: bytes, number: int) -> list[tuple[int, bytes]]:
    """Returns the lines of a block with their numbers; a long one in pieces."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if max(map(len, lines), default=0) <= LONGEST_LINE:
        return list(enumerate(lines, number))
    return [
        (place, line[start : start + LONGEST_LINE])
        for place, line in enumerate(lines, number)
        for start in range(0, len(line) or 1, LONGEST_LINE)
    ]
