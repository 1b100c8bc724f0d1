"""Sets of disjoint intervals, which merge and are cut."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field


@dataclass
class Intervals:
    """Disjoint, non-adjacent intervals: adjacent ones are merged."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def around(self, start: int, end: int) -> tuple[int, int] | None:
        """Returns the interval that contains ``[start, end)``."""
        at = bisect_right(self.starts, start) - 1
        return (self.starts[at], self.ends[at]) if at >= 0 and end <= self.ends[at] else None

    def meets(self, start: int, end: int) -> bool:
        at = bisect_left(self.ends, start + 1)
        return at < len(self.starts) and self.starts[at] < end

    def add(self, start: int, end: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        """Adds an interval that overlaps none; returns the adjacent ones, and the merged interval."""
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        touched = list(zip(self.starts[first:last], self.ends[first:last], strict=True))
        joined = min([start, *(a for a, _ in touched)]), max([end, *(b for _, b in touched)])
        self.starts[first:last], self.ends[first:last] = [joined[0]], [joined[1]]
        return touched, joined

    def cut(self, start: int, end: int) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        """Removes ``[start, end)`` from its containing interval; returns that one, and the remainders."""
        at = bisect_right(self.starts, start) - 1
        whole = self.starts[at], self.ends[at]
        left = [(a, b) for a, b in ((whole[0], start), (end, whole[1])) if a < b]
        self.starts[at : at + 1], self.ends[at : at + 1] = [a for a, _ in left], [b for _, b in left]
        return whole, left
