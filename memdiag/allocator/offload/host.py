"""The pinned pool on the host: it grows by blocks of a fixed size, and a tensor lies within one of them.

A tensor larger than a block has as many blocks' worth to itself. Within blocks the best fitting gap is taken, and neighbouring gaps are one
again when they are free; blocks are never given back, as pinning memory is slow.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

_GRAIN = 4096


class HostPool:
    """Keeps account of the pool.

    Args:
        block_bytes: By which it grows.

    Attributes:
        held_bytes: Of all blocks.
        used_bytes: Of what lies in them now.
        peak_used_bytes: The most that lay in them.
    """

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.held_bytes = self.used_bytes = self.peak_used_bytes = 0
        self._free: list[tuple[int, int]] = []  # (bytes, place), in order
        self._ends: dict[int, int] = {}  # end of a gap: its beginning
        self._begins: dict[int, int] = {}  # beginning of a gap: its end
        self._block_starts: set[int] = set()
        self._size: dict[object, tuple[int, int]] = {}

    def put(self, key: object, size: int) -> None:
        """Finds room for ``size`` bytes, growing if there is none."""
        wanted = -(-max(size, 1) // _GRAIN) * _GRAIN
        at = bisect_left(self._free, (wanted, -1))
        if at == len(self._free):
            grown = -(-wanted // self.block_bytes) * self.block_bytes
            place, self.held_bytes = self.held_bytes, self.held_bytes + grown
            self._block_starts.add(place)
            self._add(place, place + grown)
            at = bisect_left(self._free, (wanted, -1))
        room, place = self._free[at]
        self._remove(place, place + room)
        if room > wanted:
            self._add(place + wanted, place + room)
        self._size[key] = (place, wanted)
        self.used_bytes += wanted
        self.peak_used_bytes = max(self.peak_used_bytes, self.used_bytes)

    def take(self, key: object) -> None:
        """Gives the room back."""
        place, size = self._size.pop(key)
        self.used_bytes -= size
        begin, end = place, place + size
        if begin not in self._block_starts and begin in self._ends:
            before = self._ends[begin]
            self._remove(before, begin)
            begin = before
        if end not in self._block_starts and end in self._begins:
            after = self._begins[end]
            self._remove(end, after)
            end = after
        self._add(begin, end)

    def _add(self, begin: int, end: int) -> None:
        insort(self._free, (end - begin, begin))
        self._begins[begin], self._ends[end] = end, begin

    def _remove(self, begin: int, end: int) -> None:
        del self._free[bisect_left(self._free, (end - begin, begin))]
        del self._begins[begin], self._ends[end]


def peak_of(stays: Iterable[tuple[float, float, int]], block_bytes: int) -> tuple[int, int]:
    """Returns bytes held and bytes used at most, of stays (from, until, bytes) in the pool."""
    pool = HostPool(block_bytes)
    changes = []
    for key, (begin, until, size) in enumerate(stays):
        changes.append((begin, 1, key, size))
        if until != float("inf"):
            changes.append((max(until, begin), 0 if until > begin else 2, key, size))
    for _, kind, key, size in sorted(changes):
        if kind == 1:
            pool.put(key, size)
        else:
            pool.take(key)
    return pool.held_bytes, pool.peak_used_bytes
