"""The parts of the reference allocator: settings, blocks in segments, pools, and a driver whose memory is a sum.

A segment is the list of its blocks; free memory is the idle part of that list, without separate bookkeeping.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from dataclasses import dataclass, field

MIB = 1 << 20
GRAIN = 2 * MIB  # the device's allocation granularity
NO_LIMIT = 1 << 62


class OutOfMemory(Exception):
    """The request failed; the allocator continues."""


class Undefined(Exception):
    """The real allocator fails an assertion, or continues with memory that it has released."""


def round_up(number: int, unit: int) -> int:
    return (number + unit - 1) // unit * unit


# ------------------------------------------------------------------------------------------------------------- settings


def divisions(text: str) -> list[int]:
    """Returns the 16 numbers of roundup_power2_divisions.

    Number k applies to sizes from 2^k MiB on; the first number also applies to all smaller sizes.
    """
    if not text.startswith("["):
        return [int(text)] * 16
    numbers, last = [0] * 16, None
    for part in text.strip("[]").split(","):
        boundary, _, number = part.partition(":")
        if boundary == ">":
            first = 1 if last is None else last + 1  # a list with ">" alone leaves the first number at 0
            numbers[first:] = [int(number)] * (16 - first)
            continue
        at = min(int(boundary).bit_length() - 1, 15)
        for k in range(at + 1 if last is None else 0):  # only the first boundary fills all entries below it
            numbers[k] = int(number)
        numbers[at] = int(number)
        last = at
    return numbers


@dataclass
class Settings:
    """The numbers in a settings string."""

    text: str = ""
    values: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.values = dict(re.findall(r"(\w+):(\[[^\]]*\]|[^,\[]+)", self.text.replace(" ", "")))
        self.large = int(self.values.get("large_segment_size_mb", 20)) * MIB
        self.max_split = int(self.values["max_split_size_mb"]) * MIB if "max_split_size_mb" in self.values else NO_LIMIT
        self.rounding = int(self.values.get("max_non_split_rounding_mb", self.large // MIB)) * MIB
        self.divisions = divisions(self.values.get("roundup_power2_divisions", "0"))
        self.gc = float(self.values.get("garbage_collection_threshold", 0))
        self.expandable = self.values.get("expandable_segments") == "True"
        self.fraction = float(self.values.get("per_process_memory_fraction", 1))
        self.rejects = "True" in {self.values.get("throw_on_cudamalloc_oom"), self.values.get("throw_on_npumalloc_oom")}


# -------------------------------------------------------------------------------- blocks and pools


@dataclass(eq=False)
class Block:
    """A block of a segment: in use, waiting for streams, free, or (of an expandable segment) unmapped."""

    segment: Segment
    off: int
    size: int
    mapped: bool = True
    idle: bool = True  # neither in use nor freed and waiting
    tensor: int = -1
    requested: int = 0
    uses: set[int] = field(default_factory=set)
    captured_uses: set[int] = field(default_factory=set)
    num_events: int = 0
    free_since: int = 0  # number of its pool's search
    made: int = field(default_factory=itertools.count().__next__)  # in 2.12, the older object wins a tie

    @property
    def whole(self) -> bool:
        return len(self.segment.blocks) == 1

    def neighbour(self, step: int) -> Block | None:
        at = self.segment.place(self) + step
        return self.segment.blocks[at] if 0 <= at < len(self.segment.blocks) else None

    @property
    def room(self) -> int:
        """Bytes of the block, plus those of the following block if that can be mapped."""
        after = self.neighbour(1)
        return self.size + (after.size if after and not after.mapped else 0)


@dataclass(eq=False)
class Segment:
    """A range of addresses from the driver; ``page`` is the unit of mapping, or 0 for a segment without pages."""

    number: int
    pool: Pool
    stream: int
    size: int
    page: int = 0
    base: int = 0
    blocks: list[Block] = field(default_factory=list)

    def place(self, block: Block) -> int:
        return bisect_left(self.blocks, block.off, key=lambda b: b.off)

    def cut(self, block: Block, size: int) -> Block:
        """Truncates a block to its first ``size`` bytes and returns the remainder as a block."""
        rest = Block(self, block.off + size, block.size - size, block.mapped)
        block.size = size
        self.blocks.insert(self.place(block) + 1, rest)
        return rest


@dataclass(eq=False)
class Pool:
    """Small or large blocks of one memory pool."""

    small: bool
    owner: Private | None = None
    number: int = 0
    segments: list[Segment] = field(default_factory=list)
    num_searches: int = 0

    def free(self, stream: int | None = None) -> list[Block]:
        return [
            b for s in self.segments if stream is None or s.stream == stream for b in s.blocks if b.idle and b.mapped
        ]

    def gaps(self, stream: int) -> list[Block]:
        found = [b for s in self.segments if s.stream == stream for b in s.blocks if not b.mapped]
        return sorted(found, key=lambda b: (b.segment.base, b.off))


@dataclass(eq=False)
class Private:
    """A private pool; ``num_users`` counts its open scopes, ``count`` the ranges it is assumed to have.

    ``kind``: 1, its blocks are never split; 2, it lends free blocks to the default pool when the driver has no more
    memory; 3, both.
    """

    number: int
    kind: int = 0
    num_users: int = 1
    count: int = 0

    def __post_init__(self) -> None:
        self.pools = Pool(True, self, self.number), Pool(False, self, self.number)


@dataclass
class Device:
    """The driver: it tracks only the sum of used memory, and addresses only increase."""

    total: int | None
    used: int = 0
    others: int = 0
    next_address: int = 1 << 40
    bases: list[int] = field(default_factory=list)

    @property
    def spare(self) -> int:
        return NO_LIMIT if self.total is None else self.total - self.used - self.others

    def take(self, size: int, page: int = 0) -> bool:
        size = self.behind(size, page)
        if size > self.spare:
            return False
        self.used += size
        return True

    def give_back(self, size: int, page: int = 0) -> None:
        self.used -= self.behind(size, page)

    @staticmethod
    def behind(size: int, page: int) -> int:
        """Returns the device memory that backs ``size`` bytes.

        It is rounded up to the granularity: as one range without ``page``, else for each page.
        """
        return size // page * round_up(page, GRAIN) if page else round_up(size, GRAIN)

    def range(self, pool: Pool, stream: int, size: int, page: int) -> Segment:
        segment = Segment(len(self.bases), pool, stream, size, page, self.next_address)
        self.bases.append(segment.base)
        self.next_address += round_up(size, GRAIN)
        return segment
