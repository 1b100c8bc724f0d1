"""State and settings of the simple allocator."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass(frozen=True)
class Group:
    """Pool and stream; blocks are found, split and merged only within one group."""

    pool: tuple[int, int]
    small: bool
    stream: int


@dataclass
class Block:
    """A live block, or a freed one that waits for the streams in ``uses``."""

    address: int
    size: int
    requested: int
    stream: int
    uses: set[int] = field(default_factory=set)
    pending: bool = False
    group: Group | None = None
    entries: dict[str, int] = field(default_factory=dict)  # entry number by action

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass
class Segment:
    """A range of addresses; ``mapped`` has its reserved pages. A cudaMalloc segment has a single page."""

    address: int
    page: int
    pages: int
    mapped: set[int]
    group: Group
    expandable: bool
    blocks: list[Block] = field(default_factory=list)

    def held(self) -> list[tuple[int, int]]:
        """Returns the reserved ranges, with adjacent ones merged."""
        ranges: list[tuple[int, int]] = []
        for number in sorted(self.mapped):
            start = self.address + number * self.page
            if ranges and ranges[-1][1] == start:
                ranges[-1] = ranges[-1][0], start + self.page
            else:
                ranges.append((start, start + self.page))
        return ranges

    def free(self) -> list[tuple[int, int]]:
        """Returns the ranges that are reserved and in no block."""
        ranges = []
        for start, end in self.held():
            at = start
            for block in sorted(self.blocks, key=lambda b: b.address):
                if start <= block.address < end:
                    if block.address > at:
                        ranges.append((at, block.address))
                    at = block.end
            if at < end:
                ranges.append((at, end))
        return ranges


@dataclass(frozen=True)
class Moment:
    """Segments and blocks after one entry."""

    segments: tuple[tuple[int, int, Group, bool], ...]  # start, end, group, expandable
    blocks: tuple[tuple[int, int, int, bool, Group], ...]  # address, size, requested, pending, group

    def total(self, what: str) -> int:
        """Returns the reserved, allocated, active or requested bytes."""
        if what == "reserved":
            return sum(end - start for start, end, _, _ in self.segments)
        if what == "requested":
            return sum(requested for _, _, requested, pending, _ in self.blocks if not pending)
        return sum(size for _, size, _, pending, _ in self.blocks if what == "active" or not pending)


@dataclass(frozen=True)
class Rules:
    """Settings of the allocator."""

    expandable: bool = False
    max_split: int | None = None
    divisions: int = 0  # for all sizes; 0 for none
    pad: int = 0
    capacity: int = 160 * MIB
    reuse_addresses: bool = False

    def round(self, requested: int) -> int:
        """Returns the smallest block size for a request."""
        size = requested + self.pad
        if self.divisions > 1 and size > 512 * self.divisions:
            power = 1 << (size.bit_length() - 1)
            step = power // self.divisions
            return -(-size // step) * step
        return max(-(-size // 512) * 512, 512)
