"""What the reference allocator is made of: settings, blocks in segments, pools, and a driver whose memory is a sum.

A segment is a list of blocks that covers it; what is free is what is in that list and idle, and nobody keeps account of
it.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from dataclasses import dataclass, field

MIB = 1 << 20
GRAIN = 2 * MIB  # what the device gives memory out in
NO_LIMIT = 1 << 62


class OutOfMemory(Exception):
    """The request failed; the allocator goes on."""


class Undefined(Exception):
    """The real allocator stops at an assertion of its own, or goes on with memory that it has given back."""


def round_up(number: int, unit: int) -> int:
    return (number + unit - 1) // unit * unit


# ---------------------------------------------------------------------------------------------------------------- settings


def divisions(text: str) -> list[int]:
    """The 16 numbers of roundup_power2_divisions: number k is for sizes from 2^k MiB on, the first also for all below."""
    if not text.startswith("["):
        return [int(text)] * 16
    numbers, last = [0] * 16, None
    for part in text.strip("[]").split(","):
        boundary, _, number = part.partition(":")
        if boundary == ">":
            first = 1 if last is None else last + 1  # a list of ">" alone leaves the first one at 0
            numbers[first:] = [int(number)] * (16 - first)
            continue
        at = min(int(boundary).bit_length() - 1, 15)
        for k in range(at + 1 if last is None else 0):  # only the first boundary fills what is below it
            numbers[k] = int(number)
        numbers[at] = int(number)
        last = at
    return numbers


@dataclass
class Settings:
    """The numbers behind a text of settings."""

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


# ---------------------------------------------------------------------------------------------------------------- what is held


@dataclass(eq=False)
class Block:
    """A piece of a segment: in use, waiting for streams, free, or (of an expandable segment) not mapped."""

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
    free_since: int = 0  # number of the search of its pool
    made: int = field(
        default_factory=itertools.count().__next__
    )  # in 2.12 ties go to the block that is older as an object

    @property
    def whole(self) -> bool:
        return len(self.segment.blocks) == 1

    def neighbour(self, step: int) -> Block | None:
        at = self.segment.place(self) + step
        return self.segment.blocks[at] if 0 <= at < len(self.segment.blocks) else None

    @property
    def room(self) -> int:
        """Bytes that it has or could have by mapping what follows."""
        after = self.neighbour(1)
        return self.size + (after.size if after and not after.mapped else 0)


@dataclass(eq=False)
class Segment:
    """A range of addresses from the driver; ``page`` bytes are mapped at a time, 0: all of it is held from the beginning."""

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
        """Shortens a block to its first ``size`` bytes and returns the rest as a block."""
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
    """A private pool; ``num_users`` counts who may allocate in it, ``count`` the ranges it is thought to have.

    ``kind``: 1, no block of it is ever cut; 2, it lends free blocks to the default pool where the driver has no more;
    3, both.
    """

    number: int
    kind: int = 0
    num_users: int = 1
    count: int = 0

    def __post_init__(self) -> None:
        self.pools = Pool(True, self, self.number), Pool(False, self, self.number)


@dataclass
class Device:
    """The driver: memory is a sum; addresses only go up."""

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
        """Device memory behind ``size`` bytes: one piece, or pages (of an odd number of MiB, say) that take whole ones of its own each."""
        return size // page * round_up(page, GRAIN) if page else round_up(size, GRAIN)

    def range(self, pool: Pool, stream: int, size: int, page: int) -> Segment:
        segment = Segment(len(self.bases), pool, stream, size, page, self.next_address)
        self.bases.append(segment.base)
        self.next_address += round_up(size, GRAIN)
        return segment
