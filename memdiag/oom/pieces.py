"""Maps positions in joined text to the lines of a block of bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

LONGEST_LINE = 4096


def starts(shapes: Sequence[bytes], hits: dict[int, int]) -> list[int]:
    """Returns the positions of lines' matches in the joined text."""
    starts = [0, *accumulate(map(len, shapes))]
    return [starts[index] + place for index, place in hits.items()]


def line_indices(lines: Sequence[tuple[int, bytes]], places: Sequence[int], dropped: bytes) -> set[int]:
    """Returns the lines that contain the given positions of a text.

    The text consists of the lines without newlines and dropped bytes.
    """
    ends = list(accumulate(len(line.translate(None, dropped)) for _number, line in lines))
    return {min(bisect_right(ends, max(place, 0)), len(lines) - 1) for place in places}


def pieces(block: bytes, number: int) -> list[tuple[int, bytes]]:
    """Returns the numbered lines of a block; long lines are divided."""
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
