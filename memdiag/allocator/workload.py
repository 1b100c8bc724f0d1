"""A workload: the allocator calls of a program in order, and the allocator state before the first of them.

A workload contains no segments or addresses of new memory: replaying it through a policy creates those. Several rows of
a trace can form one call (an allocation and the segment events within it). A call may also have no row, for example a
release that is only visible as a burst of frees.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.trace.table import Array

# Kinds of calls. FREE returns the block at once unless a recorded stream still uses it. FREE_REQUESTED and
# FREE_COMPLETED are the two halves of a free in a recording, in which the events of streams are unknown.
OPS: tuple[str, ...] = (
    "nothing",
    "alloc",
    "free",
    "free_requested",
    "free_completed",
    "empty_cache",
    "record_stream",
    "complete",
    "sync",
    "set_fraction",
    "pool_begin",
    "pool_end",
    "pool_release",
    "external",
    "set_total",
    "capture",
)
(
    NOTHING,
    ALLOC,
    FREE,
    FREE_REQUESTED,
    FREE_COMPLETED,
    EMPTY_CACHE,
    RECORD_STREAM,
    COMPLETE,
    SYNC,
    SET_FRACTION,
    POOL_BEGIN,
    POOL_END,
    POOL_RELEASE,
    EXTERNAL,
    SET_TOTAL,
    CAPTURE,
) = range(16)
OP_CODES = {name: code for code, name in enumerate(OPS)}


def _empty(dtype: str) -> Array:
    return np.empty(0, dtype)


@dataclass(frozen=True)
class Start:
    """The allocator state before the first call: ranges from the driver, and the blocks in them that are not free.

    Attributes:
        base, size: Per range: first address and bytes (int64). In an expandable segment, each mapped piece is a range.
        pool, stream: Per range: index into the workload's pools and streams (int32).
        small, expandable: Per range (bool).
        order: Per range, its order of reservation if known; smaller numbers are earlier (int64).
        block_range, block_off, block_size: Per block, by address: row of its range, bytes from its base, bytes (int32,
            int64, int64).
        block_tensor: Number of the tensor in it, as in ``Workload.tensor`` (int32).
        block_requested: Requested bytes (int64).
        block_pending: Freed, but waiting for a stream (bool); a FREE_COMPLETED of its tensor ends the wait.
    """

    base: Array = field(default_factory=lambda: _empty("int64"))
    size: Array = field(default_factory=lambda: _empty("int64"))
    pool: Array = field(default_factory=lambda: _empty("int32"))
    stream: Array = field(default_factory=lambda: _empty("int32"))
    small: Array = field(default_factory=lambda: _empty("bool"))
    expandable: Array = field(default_factory=lambda: _empty("bool"))
    order: Array = field(default_factory=lambda: _empty("int64"))
    block_range: Array = field(default_factory=lambda: _empty("int32"))
    block_off: Array = field(default_factory=lambda: _empty("int64"))
    block_size: Array = field(default_factory=lambda: _empty("int64"))
    block_tensor: Array = field(default_factory=lambda: _empty("int32"))
    block_requested: Array = field(default_factory=lambda: _empty("int64"))
    block_pending: Array = field(default_factory=lambda: _empty("bool"))


@dataclass(frozen=True)
class Workload:
    """The calls of a program, one numpy array per column, all of the same length.

    Attributes:
        op: Index into ``OPS`` (int8).
        tensor: Number of the allocation that is made, freed or recorded; -1: none. Numbers are dense from 0, and each
            is allocated at most once (int32).
        size: Requested bytes. For SET_FRACTION: the fraction times 10^9. For EXTERNAL and SET_TOTAL: device bytes. For
            POOL_RELEASE: 0 releases the memory at once, 1 at the next release (a graph that is deleted). For CAPTURE:
            whether requests in the pool belong to a graph capture from this call on (int64).
        stream: Index into ``streams``. For COMPLETE, -1: all streams. For RECORD_STREAM: the stream that uses the
            tensor. For POOL_BEGIN, -1: allocations of every stream go to the pool (int32).
        pool: For ALLOC: index into ``pools`` of the recorded pool; -1: the pool of the scopes opened by POOL_BEGIN,
            otherwise the default pool. For POOL_BEGIN, POOL_END, POOL_RELEASE and CAPTURE: the pool (int32).
        row: Index of the trace event after which the call is done; never decreases (int64).
        num_rows: Number of events of the trace.
        num_tensors: Number of tensor numbers in use.
        streams: Handles of the streams in increasing unsigned order, which is the allocator's own order (uint64).
        pools: Pool ids; the first is the default pool (0, 0).
        no_split: Indices of the pools whose blocks are whole segments: ``MemPool(no_split=True)``.
        stand_in: Pools whose free memory serves the default pool when the driver has no more:
            ``MemPool(use_on_oom=True)``.
        captured: Pools that are used only during a CUDA graph capture. A capture cannot wait for events, so a failed
            request does not release cached memory and retry. CAPTURE calls mark the captures of a pool that is also
            used outside of them.
        start: The allocator state before the first call.
        done: When the work of other streams completes: "now" (by the next call), "manual" (at COMPLETE and SYNC) or
            "recorded" (at FREE_COMPLETED).
        capacity_bytes: Size of the device according to the source; None: unknown.
    """

    op: Array
    tensor: Array
    size: Array
    stream: Array
    pool: Array
    row: Array
    num_rows: int
    num_tensors: int
    streams: Array
    pools: tuple[tuple[int, int], ...] = ((0, 0),)
    no_split: frozenset[int] = frozenset()
    stand_in: frozenset[int] = frozenset()
    captured: frozenset[int] = frozenset()
    start: Start = field(default_factory=Start)
    done: str = "recorded"
    capacity_bytes: int | None = None
