"""A range of a trace in the columns of a screen: zooming, panning, and curves as the highest value per column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array, highest_in_parts

LEAST = 10  # events: limit of zooming in
CURVES: tuple[str, ...] = ("allocated", "active", "reserved")


@dataclass(frozen=True, slots=True)
class Window:
    """Events ``[first, last)`` of a trace of ``num_events``."""

    first: int
    last: int
    num_events: int

    @classmethod
    def whole(cls, num_events: int) -> Window:
        """Returns the window that shows everything."""
        return cls(0, num_events, num_events)

    def __len__(self) -> int:
        return self.last - self.first

    def zoom(self, at: int, factor: float) -> Window:
        """Returns a window ``factor`` times as long, with event ``at`` at the same position if the ends allow it."""
        length = min(max(round(len(self) * factor), min(LEAST, self.num_events)), self.num_events)
        share = min(max((at - self.first) / max(len(self), 1), 0.0), 1.0)
        return self._placed(round(at - share * length), length)

    def pan(self, share: float) -> Window:
        """Returns a window moved by ``share`` of its length; negative towards the beginning."""
        return self._placed(self.first + round(share * len(self)), len(self))

    def showing(self, at: int) -> Window:
        """Returns this window if it contains event ``at``, else one of the same length around it."""
        if self.first <= max(at, 0) < self.last:
            return self
        return self._placed(max(at, 0) - len(self) // 2, len(self))

    def edges(self, width: int) -> Array:
        """Returns the first event of each of ``width`` columns, and the end of the last (int64, width + 1)."""
        return self.first + np.arange(width + 1, dtype=np.int64) * len(self) // width

    def column_of(self, at: int, width: int) -> int:
        """Returns the column that shows event ``at``, or -1.

        For an event that fills several columns, it is the middle one.
        """
        if not self.first <= at < self.last:
            return -1
        event, length = at - self.first, len(self)
        last = ((event + 1) * width - 1) // length
        return (min(-(-event * width // length), last) + last) // 2

    def event_of(self, column: int, width: int) -> int:
        """Returns the first event of a column, which is clamped to the window."""
        column = min(max(column, 0), width - 1)
        return self.first + column * len(self) // width

    def _placed(self, first: int, length: int) -> Window:
        first = min(max(first, 0), self.num_events - length)
        return Window(first, first + length, self.num_events)


def heights(device: DeviceTrace, window: Window, width: int) -> dict[str, Array]:
    """Returns the curves (int64, bytes, -1 if unknown) as the highest value in each of ``width`` columns."""
    if not len(window):
        return {name: np.full(width, device.start[name], np.int64) for name in CURVES}
    return {name: highest_in_parts(device.usage[name][window.first : window.last], width) for name in CURVES}


def highest_in(device: DeviceTrace, window: Window, column: int, width: int) -> int:
    """Returns the event of a column with the most allocated bytes, which the drawn curve represents."""
    first = window.event_of(column, width)
    after = window.event_of(column + 1, width) if column + 1 < width else window.last
    return first + int(np.argmax(device.usage.allocated[first : max(after, first + 1)]))


def first_in(events: Array, window: Window, width: int) -> Array:
    """Returns, for each of ``width`` columns, the index into ``events`` (ascending) of the first in it, or -1."""
    if not len(window) or not len(events):
        return np.full(width, -1, np.int64)
    edges = window.edges(width)
    place = np.searchsorted(events, edges[:-1])
    found = np.append(events, np.iinfo(np.int64).max)[place]
    begins = np.append(True, np.diff(edges[:-1]) > 0)  # of columns that show the same event, the first
    return np.where((found < np.maximum(edges[1:], edges[:-1] + 1)) & begins, place, -1)
