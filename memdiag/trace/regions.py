"""Memory reserved from the driver over time: the segments of the final state, with the trace's segment events undone.

The address space is divided into *cells* at every segment boundary that ever occurs. Each cell is either reserved or
not, as a whole. This works for cudaMalloc segments, for expandable segments that grow and shrink by pages, and for
addresses that are reused with another size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.sizes.cuda import SMALL_LIMIT, SMALL_SEGMENT
from memdiag.trace.compiled import njit
from memdiag.trace.layout import Layout
from memdiag.trace.raw import RawDevice
from memdiag.trace.schema import FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP
from memdiag.trace.table import Array

# A segment event touches the cells it covers. In real traces, that is one cell or a few for each event.
_MOST_PIECES = 2_000_000
_PIECES_AN_EVENT = 16

GroupKey = tuple[int, int, bool, int]  # pool id (two numbers), small, stream


class Groups:
    """Numbers the pools and streams of a device: ``(pool_major, pool_minor, small, stream)``."""

    def __init__(self) -> None:
        self._rows: dict[GroupKey, int] = {}

    def row(self, key: GroupKey) -> int:
        """Returns the number of a pool and stream, adding it if it is new."""
        return self._rows.setdefault(key, len(self._rows))

    def rows(self, major: Array, minor: Array, small: Array, stream: Array) -> Array:
        """Returns the numbers for columns of keys (int32)."""
        keys = np.stack([major, minor, small.astype(np.int64), stream])
        distinct, index = np.unique(keys, axis=1, return_inverse=True)
        numbers = [self.row((int(a), int(b), bool(c), int(d))) for a, b, c, d in distinct.T]
        return np.array(numbers, np.int32)[index.reshape(-1)] if numbers else np.empty(0, np.int32)

    def columns(self) -> dict[str, list[int] | list[bool]]:
        """Returns the columns of ``schema.GROUPS``."""
        major, minor, small, stream = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        return {"pool_major": list(major), "pool_minor": list(minor), "small": list(small), "stream": list(stream)}


@dataclass(frozen=True)
class RegionPlan:
    """Segment events and segments before the trace, in terms of cells.

    Attributes:
        bounds: int64, addresses at which cells begin; the last one is only an end.
        event: Index of each segment event.
        opens, expandable: Whether it reserves (else releases), and whether it is a map or unmap (else cudaMalloc or
            cudaFree).
        lo, hi: Half-open range of the event's cells.
        group, segment: Numbers of its group and range (segment -1 if expandable).
        start_group, start_segment: Per cell before the trace; group -1 if not reserved.
        start_expandable: Per cell before the trace.
        contradictions: Cells that are reserved twice or released twice when the events are undone from the final state.
    """

    bounds: Array
    event: Array
    opens: Array
    expandable: Array
    lo: Array
    hi: Array
    group: Array
    segment: Array
    start_group: Array
    start_segment: Array
    start_expandable: Array
    contradictions: int


@njit(plain_seconds=2e-6)
def _undo(
    num_cells: int, lo: Array, hi: Array, opens: Array, final_lo: Array, final_hi: Array, has_final: bool
) -> tuple[Array, int]:
    """Returns, per cell, the opener it belongs to before the trace.

    Final segment i is i, closing event j is F + j, and a negative number means none.
    """
    owner = np.full(num_cells, -1 if has_final else -2, np.int64)  # -2: unknown
    contradictions = 0
    num_final = len(final_lo)
    for i in range(num_final):
        for cell in range(final_lo[i], final_hi[i]):
            owner[cell] = i
    for j in range(len(lo) - 1, -1, -1):
        for cell in range(lo[j], hi[j]):
            if opens[j]:
                if owner[cell] == -1:
                    contradictions += 1
                owner[cell] = -1
            else:
                if owner[cell] >= 0:
                    contradictions += 1
                owner[cell] = num_final + j
    return owner, contradictions


def plan_regions(raw: RawDevice, layout: Layout, groups: Groups) -> RegionPlan:
    """Computes a device's cells and which of them were reserved before its trace began."""
    event = np.flatnonzero(
        np.isin(raw.action, (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)) & (raw.size > 0)
    )
    action, addr, size = raw.action[event], raw.addr[event], raw.size[event]
    opens = (action == SEGMENT_ALLOC) | (action == SEGMENT_MAP)
    expandable = (action == SEGMENT_MAP) | (action == SEGMENT_UNMAP)
    final = raw.segments
    final_addr = final.address if final is not None else np.empty(0, np.int64)
    final_size = final.total_size if final is not None else np.empty(0, np.int64)
    bounds = np.unique(np.concatenate((addr, addr + size, final_addr, final_addr + final_size)))
    lo, hi = np.searchsorted(bounds, addr), np.searchsorted(bounds, addr + size)
    final_lo, final_hi = np.searchsorted(bounds, final_addr), np.searchsorted(bounds, final_addr + final_size)

    touched = int((hi - lo).sum() + (final_hi - final_lo).sum())
    if touched > _MOST_PIECES + _PIECES_AN_EVENT * len(raw.action):
        raise ValueError(f"segments overlap each other in {touched:,} pieces")

    # Determine the pool. It is the entry's own pool id, else that of a final segment at the same address, else the
    # default pool.
    home = _containing(final_addr, final_size, addr)
    stream = raw.stream[event] if raw.stream is not None else np.zeros(len(event), np.int64)
    pool = raw.pool[event] if raw.pool is not None else np.full((len(event), 2), -1, np.int64)
    if final is not None and len(final):
        home_pool = np.stack([final.pool_major[home], final.pool_minor[home]], axis=1)
        pool = np.where((pool < 0) & (home >= 0)[:, None], home_pool, pool)
    pool = np.where(pool < 0, 0, pool)
    events = _SegmentEvents(event, addr, size, opens, expandable, lo, hi, home)
    small = _is_small(len(bounds), events, raw, layout)
    group = groups.rows(pool[:, 0], pool[:, 1], small, stream)
    if final is not None and len(final):
        final_group = groups.rows(final.pool_major, final.pool_minor, final.small, final.stream)
        final_expandable = final.expandable
    else:
        final_group, final_expandable = np.empty(0, np.int32), np.empty(0, bool)

    owner, contradictions = _undo(max(len(bounds) - 1, 0), lo, hi, opens, final_lo, final_hi, final is not None)
    held = owner >= 0
    all_groups = np.concatenate((final_group, group))
    all_expandable = np.concatenate((final_expandable, expandable))
    start_group = np.where(held, all_groups[owner] if len(all_groups) else -1, -1)
    start_expandable = np.where(held, all_expandable[owner] if len(all_expandable) else False, False)
    # Ranges are numbered: those from before the trace by address, then those of the trace in order.
    _, ordinal = np.unique(owner[held], return_inverse=True)
    start_segment = np.full(len(owner), -1)
    start_segment[held] = ordinal
    opened = np.flatnonzero(opens & ~expandable)
    segment = np.full(len(event), -1)
    segment[opened] = np.arange(len(opened)) + (ordinal.max() + 1 if len(ordinal) else 0)
    start_segment[start_expandable] = -1
    return RegionPlan(
        bounds,
        event,
        opens,
        expandable,
        lo,
        hi,
        group,
        segment,
        start_group.astype(np.int32),
        start_segment.astype(np.int32),
        start_expandable,
        int(contradictions),
    )


def _containing(start: Array, size: Array, addr: Array) -> Array:
    """Returns, per address, the row of the range that contains it, or -1."""
    if not len(start):
        return np.full(len(addr), -1)
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], addr, side="right") - 1
    row = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (addr < start[row] + size[row]), row, -1)


@dataclass(frozen=True)
class _SegmentEvents:
    """The segment events of a device.

    Attributes:
        event, addr, size: Index, address and bytes of each.
        opens, expandable: As in ``RegionPlan``.
        lo, hi: The cells of each.
        home: The final segment that contains it, or -1.
    """

    event: Array
    addr: Array
    size: Array
    opens: Array
    expandable: Array
    lo: Array
    hi: Array
    home: Array


def _is_small(num_cells: int, events: _SegmentEvents, raw: RawDevice, layout: Layout) -> Array:
    """Returns whether each segment event belongs to the small pool.

    Segments of the small pool are 2 MiB, and it never maps more than one page of 2 MiB. An unmap can cover any number
    of pages, so the pool is that of the preceding map. For pages from before the trace, it is inferred from the blocks
    in them, else from the next owner of the addresses (which may be in the other pool).
    """
    event, addr, size, home = events.event, events.addr, events.size, events.home
    opens, expandable = events.opens, events.expandable
    small: Array = size == SMALL_SEGMENT
    unmaps = np.flatnonzero(expandable & ~opens)
    if not len(unmaps):
        return small
    kinds: Array = _mapped_before(num_cells, events.lo, events.hi, opens, small)[unmaps]
    unknown = np.flatnonzero(kinds < 0)
    if len(unknown):
        rows = unmaps[unknown]
        maps = np.flatnonzero(expandable & opens)
        later = _containing(addr[maps], size[maps], addr[rows])
        then = small[maps[later]] if len(maps) else np.zeros(len(rows), bool)
        last = np.zeros(len(rows), bool)
        if raw.segments is not None and len(raw.segments):
            last = (home[rows] >= 0) & raw.segments.expandable[home[rows]] & raw.segments.small[home[rows]]
        guess = np.where(later >= 0, then, last) | (size[rows] % layout.large_segment != 0)
        blocks = np.flatnonzero((raw.action <= FREE_COMPLETED) & (raw.addr >= 0))
        place, first = np.unique(raw.addr[blocks], return_index=True)
        for row, kind, at, begin, end in zip(
            unknown, guess, event[rows], addr[rows], addr[rows] + size[rows], strict=True
        ):
            inside = blocks[first[np.searchsorted(place, begin) : np.searchsorted(place, end)]]
            inside = inside[inside < at]
            kinds[row] = layout.round_size(raw.size[inside[:1]])[0] <= SMALL_LIMIT if len(inside) else kind
    small[unmaps] = kinds > 0
    return small


@njit(plain_seconds=2e-6)
def _mapped_before(num_cells: int, lo: Array, hi: Array, opens: Array, small: Array) -> Array:
    """Returns, per event, whether the preceding map of its cells is small (1) or not (0), or -1 if not in the trace."""
    kind = np.full(num_cells, -1, np.int8)
    found = np.full(len(lo), -1, np.int8)
    for j in range(len(lo)):
        for cell in range(lo[j], hi[j]):
            found[j] = max(found[j], kind[cell])
            kind[cell] = small[j] if opens[j] else -1
    return found
