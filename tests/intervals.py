"""Memory as intervals, in plain objects: reserved ranges, free ranges, and their use for a request.

Used by ``checker``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MIB = 1 << 20


class Contradiction(Exception):
    """Raised if the file contradicts itself."""


@dataclass(frozen=True)
class Group:
    """Pool id, whether it is the pool of small blocks, stream."""

    pool: tuple[int, int]
    small: bool
    stream: int


@dataclass
class Block:
    """One lifecycle. Event -1 is before the trace, ``num_events`` after it."""

    address: int
    size: int
    requested: int
    alloc_at: int
    free_requested_at: int
    free_completed_at: int
    group: Group | None = None

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True)
class Range:
    """A range reserved from the driver. ``ident``: the cudaMalloc segment; None: part of an expandable segment."""

    start: int
    end: int
    group: Group
    ident: int | None


@dataclass(frozen=True)
class Reference:
    """The reference request."""

    at: int
    size: int
    group: Group


@dataclass(frozen=True)
class Moment:
    """All ranges and blocks after one event."""

    segments: tuple[Range, ...]
    blocks: tuple[tuple[int, int, int, bool], ...]  # address, size, requested, pending

    @property
    def reserved(self) -> int:
        return sum(s.end - s.start for s in self.segments)

    @property
    def active(self) -> int:
        return sum(size for _, size, _, _ in self.blocks)

    @property
    def allocated(self) -> int:
        return sum(size for _, size, _, pending in self.blocks if not pending)

    @property
    def requested(self) -> int:
        return sum(requested for _, _, requested, pending in self.blocks if not pending)

    def free(self) -> list[tuple[int, int, Range]]:
        """Every free range with its segment: the reserved ranges without the blocks."""
        ranges = []
        for segment in self.segments:
            at = segment.start
            for address, size, _, _ in self.blocks:
                if segment.start <= address < segment.end:
                    if address > at:
                        ranges.append((at, address, segment))
                    at = address + size
            if at < segment.end:
                ranges.append((at, segment.end, segment))
        return ranges


def split(moment: Moment, reference: Reference, large_page: int) -> tuple[int, int, int, int]:
    """Returns cache, stranded, foreign, and the largest free range of the reference's pool and stream."""
    cache = stranded = foreign = largest = 0
    for start, end, segment in moment.free():
        mine = segment.group == reference.group
        whole = 0
        if (start, end) == (segment.start, segment.end):
            whole = end - start
        elif segment.ident is None:
            page = 2 * MIB if segment.group.small else large_page
            pages = (segment.end - segment.start) // page
            whole = sum(
                page
                for n in range(pages)
                if start <= segment.start + n * page and segment.start + (n + 1) * page <= end
            )
        rest = end - start - whole
        cache += whole
        if mine:
            largest = max(largest, end - start)
        if mine and end - start >= reference.size:
            cache += rest
        elif mine:
            stranded += rest
        else:
            foreign += rest
    return cache, stranded, foreign, largest


def minus(ranges: list[Range], start: int, end: int) -> list[Range]:
    """Returns ``ranges`` without [start, end), which they must contain."""
    left: list[Range] = []
    taken = 0
    for r in ranges:
        lo, hi = max(start, r.start), min(end, r.end)
        if lo >= hi:
            left.append(r)
            continue
        taken += hi - lo
        if r.start < lo:
            left.append(Range(r.start, lo, r.group, r.ident))
        if hi < r.end:
            left.append(Range(hi, r.end, r.group, r.ident))
    if taken != end - start:
        raise Contradiction(f"[{start:#x}, {end:#x}) is not held")
    return left


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Returns the ranges in order; adjacent parts of expandable segments are merged."""
    joined: list[Range] = []
    for r in sorted(ranges, key=lambda r: r.start):
        last = joined[-1] if joined else None
        if last is not None and last.end > r.start:
            raise Contradiction(f"{r.start:#x} is held twice")
        if last is not None and last.end == r.start and last.group == r.group and last.ident == r.ident:
            joined[-1] = Range(last.start, r.end, r.group, r.ident)
        else:
            joined.append(r)
    return tuple(joined)
