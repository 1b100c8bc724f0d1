"""The pinned pool on the host: it grows by blocks of a fixed size, and a tensor lies within one of them.

A tensor larger than a block has as many blocks' worth to itself. Within blocks the best fitting gap is taken, and neighbouring gaps are one
again when they are free; blocks are never given back, as pinning memory is slow.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from memdiag.trace.table import Array

_GRAIN = 4096
_PLACE_BITS = 64
_PLACE = (1 << _PLACE_BITS) - 1


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
        self._free: list[int] = []  # gaps as bytes * 2**64 + place, in order: numbers are found faster than pairs
        self._from: dict[int, int] = {}  # bytes of the gap that begins here
        self._to: dict[int, int] = {}  # and of the one that ends here
        self._next = 0  # place of the next block
        self._size: dict[object, tuple[int, int]] = {}

    def put(self, key: object, size: int) -> None:
        """Finds room for ``size`` bytes, growing if there is none."""
        wanted = -(-max(size, 1) // _GRAIN) * _GRAIN
        at = bisect_left(self._free, wanted << _PLACE_BITS)
        if at < len(self._free):
            gap = self._free.pop(at)
            place, room = gap & _PLACE, gap >> _PLACE_BITS
            del self._from[place], self._to[place + room]
        else:
            place, room = self._next, -(-wanted // self.block_bytes) * self.block_bytes
            self.held_bytes += room
            self._next += room + 1  # blocks do not touch, so gaps of two of them never become one
        if room > wanted:
            self._add(place + wanted, room - wanted)
        self._size[key] = (place, wanted)
        self.used_bytes += wanted
        self.peak_used_bytes = max(self.peak_used_bytes, self.used_bytes)

    def take(self, key: object) -> None:
        """Gives the room back."""
        place, size = self._size.pop(key)
        self.used_bytes -= size
        before, after = self._to.pop(place, 0), self._from.pop(place + size, 0)
        if before:
            del self._from[place - before], self._free[bisect_left(self._free, before << _PLACE_BITS | place - before)]
        if after:
            del self._to[place + size + after], self._free[bisect_left(self._free, after << _PLACE_BITS | place + size)]
        self._add(place - before, before + size + after)

    def _add(self, place: int, room: int) -> None:
        insort(self._free, room << _PLACE_BITS | place)
        self._from[place] = self._to[place + room] = room


def peak_of(begin: Array, until: Array, size: Array, block_bytes: int) -> tuple[int, int]:
    """Returns bytes held and bytes used at most, of stays in the pool.

    Args:
        begin, until: When each begins and ends; infinite: it does not.
        size: Its bytes.
        block_bytes: By which the pool grows.
    """
    pool = HostPool(block_bytes)
    goes = np.flatnonzero(np.isfinite(until))
    key = np.concatenate([np.arange(len(size)), goes])
    moment = np.concatenate([begin, np.maximum(until, begin)[goes]])
    # At one moment what goes makes room first; but what goes as it comes can go only after that.
    kind = np.concatenate([np.ones(len(size), np.int64), np.where(until > begin, 0, 2)[goes]])
    is_put = np.arange(len(key)) < len(size)
    order = np.lexsort((key, kind, moment))
    for stay, comes, wanted in zip(key[order].tolist(), is_put[order].tolist(), size[key[order]].tolist(), strict=True):
        if comes:
            pool.put(stay, wanted)
        else:
            pool.take(stay)
    return pool.held_bytes, pool.peak_used_bytes
