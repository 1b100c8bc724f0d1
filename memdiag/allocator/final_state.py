"""The allocator's segments and blocks at the end of a replay, in the form in which a snapshot lists them."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.result import Replay
from memdiag.allocator.workload import Start, Workload
from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace import schema
from memdiag.trace.snapshot_rows import completed
from memdiag.trace.table import Array, Table

_OPENS = (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)
_CLOSES = (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)


def final_state(replay: Replay, workload: Workload, start: Start, addr: Array) -> tuple[Table, Table]:
    """Returns the segments and the blocks that are not free at the end of ``replay``.

    Args:
        replay: A replay with a log.
        workload: The replayed workload.
        start: The allocator's state at the start of the replay.
        addr: Address of each entry of the log.
    """
    segments = _segments(replay, workload, start, addr)
    return segments, _blocks(replay, start, addr, segments)


def _segments(replay: Replay, workload: Workload, start: Start, addr: Array) -> Table:
    log = replay.log or {}
    rows = np.flatnonzero(np.isin(log["action"], _OPENS + _CLOSES))
    action, size = log["action"][rows], log["size"][rows]
    # Divide the address space at every boundary that occurs. ``owner`` has the number of the range that contains each
    # piece; the ranges at the start come first.
    lo_at = np.concatenate((start.base, addr[rows]))
    hi_at = lo_at + np.concatenate((start.size, size))
    bounds = np.unique(np.concatenate((lo_at, hi_at)))
    lo, hi = np.searchsorted(bounds, lo_at).tolist(), np.searchsorted(bounds, hi_at).tolist()
    opens = [True] * len(start.base) + np.isin(action, _OPENS).tolist()
    owner = np.full(max(len(bounds) - 1, 0), -1, np.int64)
    for number, is_open in enumerate(opens):
        owner[lo[number] : hi[number]] = number if is_open else -1
    expandable = np.concatenate((start.expandable, action == schema.SEGMENT_MAP))
    small = np.concatenate((start.small, size == SMALL_SEGMENT))
    pool = np.concatenate((start.pool, np.clip(log["pool"][rows], 0, len(workload.pools) - 1)))
    stream = np.concatenate((start.stream, np.clip(log["stream"][rows], 0, None)))

    held = np.flatnonzero(owner >= 0)
    of = owner[held]
    # Adjacent pieces are one segment if they were reserved together, or are expandable and of one pool and stream.
    new = np.ones(len(held), bool)
    if len(held) > 1:
        a, b = of[:-1], of[1:]
        alike = expandable[a] & expandable[b] & (small[a] == small[b]) & (pool[a] == pool[b]) & (stream[a] == stream[b])
        new[1:] = ~((bounds[held[:-1] + 1] == bounds[held[1:]]) & (alike | (a == b)))
    first = np.flatnonzero(new)
    width = bounds[held + 1] - bounds[held] if len(held) else held
    total = np.add.reduceat(width, first) if len(first) else width
    which = of[first]
    ids = np.array(workload.pools, np.int64)
    return completed(
        schema.SEGMENTS,
        {
            "address": bounds[held[first]] if len(held) else held,
            "total_size": total,
            "stream": workload.streams.view(np.int64)[stream[which]],
            "small": small[which],
            "expandable": expandable[which],
            "pool_major": ids[pool[which], 0],
            "pool_minor": ids[pool[which], 1],
        },
    )


def _blocks(replay: Replay, start: Start, addr: Array, segments: Table) -> Table:
    log = replay.log or {}
    made = np.flatnonzero((log["action"] == schema.ALLOC) & (log["tensor"] >= 0))
    tensor = np.concatenate((start.block_tensor, log["tensor"][made]))
    place = np.concatenate((start.base[start.block_range] + start.block_off, addr[made]))
    size = np.concatenate((start.block_size, replay.block[log["call"][made]]))
    requested = np.concatenate((start.block_requested, log["size"][made]))
    pending = np.concatenate((start.block_pending, np.zeros(len(made), bool)))
    asked, gone = (
        np.isin(tensor, log["tensor"][log["action"] == code]) for code in (schema.FREE_REQUESTED, schema.FREE_COMPLETED)
    )
    left = np.flatnonzero(~gone)
    left = left[np.argsort(place[left], kind="stable")]
    state = np.where(pending[left] | asked[left], schema.ACTIVE_PENDING_FREE, schema.ACTIVE_ALLOCATED)
    home = np.searchsorted(segments.address, place[left], side="right") - 1
    return completed(
        schema.BLOCKS,
        {
            "segment": home,
            "address": place[left],
            "size": size[left],
            "requested_size": requested[left],
            "state": state,
        },
    )
