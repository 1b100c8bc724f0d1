"""Which blocks are live, by address: two never share a byte, so a new one tells of an end that nobody saw."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any


class LiveBlocks:
    """The live blocks of one allocator, each with whatever its allocation is remembered by."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, Any]] = {}
        self._starts: list[int] = []  # their addresses, ascending

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        """Iterates over address, bytes and what is remembered, by address."""
        return ((addr, *self._blocks[addr]) for addr in self._starts)

    def take(self, addr: int, size: int, remembered: Any) -> list[tuple[int, int]]:
        """Adds a block of ``size`` bytes.

        Returns:
            Address and bytes of the blocks that were thought to be live there. They have been given back, and are no
            more.
        """
        starts, blocks, gone = self._starts, self._blocks, []
        at = bisect_left(starts, addr)
        if at and starts[at - 1] + blocks[starts[at - 1]][0] > addr:
            at -= 1
        while at < len(starts) and starts[at] < addr + size:
            gone.append((starts[at], blocks.pop(starts[at])[0]))
            del starts[at]
        insort(starts, addr)
        blocks[addr] = (size, remembered)
        return gone

    def give_back(self, addr: int) -> bool:
        """Removes the block that begins at an address; returns whether there was one."""
        if self._blocks.pop(addr, None) is None:
            return False
        del self._starts[bisect_left(self._starts, addr)]
        return True
