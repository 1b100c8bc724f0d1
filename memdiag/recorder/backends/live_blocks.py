"""Live blocks by address: blocks never overlap, so a new block proves that the blocks it overlaps were freed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any


class LiveBlocks:
    """The live blocks of one allocator, each with a value from its allocation."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, Any]] = {}
        self._starts: list[int] = []  # addresses, ascending

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int, Any]]:
        """Yields address, bytes and value of each block, by address."""
        return ((addr, *self._blocks[addr]) for addr in self._starts)

    def take(self, addr: int, size: int, remembered: Any) -> list[tuple[int, int]]:
        """Adds a block of ``size`` bytes.

        Returns:
            Address and bytes of the overlapped blocks, which were freed unseen. They are removed.
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
