"""Converts a replay to rows: one for each input event, with the allocator state after it."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.result import Replay
from memdiag.allocator.workload import ALLOC, Workload
from memdiag.trace.table import Array

_CURVES = ("reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees")


def rows_of(replay: Replay, workload: Workload, *, with_addresses: bool) -> dict[str, Array]:
    """Returns int64 columns: seg, off (-1: no address), the curves, and for NPU addr from the lowest address on."""
    count = workload.num_rows
    rows = workload.row
    # The last call at or before each event; events before the first call show the state at the start.
    last = np.searchsorted(rows, np.arange(count), side="right") - 1
    known = last >= 0
    columns = {}
    for name in ("seg", "off"):
        columns[name] = np.full(count, -1, np.int64)
    made = np.flatnonzero((workload.op == ALLOC) & (rows >= 0) & (rows < count))
    columns["seg"][rows[made]] = replay.seg[made]
    columns["off"][rows[made]] = replay.off[made]
    start = _at_start(workload)
    for name in _CURVES:
        values = getattr(replay, name).astype(np.int64)
        first = start.get(name, 0)
        columns[name] = np.where(known, values[np.maximum(last, 0)] if len(values) else first, first)
    if with_addresses:
        addr = np.full(count, -1, np.int64)
        placed = made[replay.seg[made] >= 0]
        found = replay.bases[replay.seg[placed]] + replay.off[placed]
        addr[rows[placed]] = found - (found.min() if len(found) else 0)
        columns["addr"] = addr
    return columns


def _at_start(workload: Workload) -> dict[str, int]:
    start = workload.start
    live = ~start.block_pending
    return {
        "reserved": int(start.size.sum()),
        "active": int(start.block_size.sum()),
        "allocated": int(start.block_size[live].sum()),
        "requested": int(start.block_requested.sum()),
    }
