"""What a program asked of an allocator: calls in order, and what the allocator held before the first of them.

A workload knows nothing of segments or addresses to come: replaying it through a policy makes those. Several rows of a
trace can be one call (an allocation and the segment events within it), and a call can come from no row of its own (a
release seen by its burst of frees).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.trace.table import Array

# What a call is. FREE returns the block at once unless streams recorded on it are not through; FREE_REQUESTED and
# FREE_COMPLETED are the two halves as a recording has them, where events of the streams themselves are not known.
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
    """What the allocator held before the first call: ranges from the driver, and the blocks in them that were not free.

    Attributes:
        base, size: Per range: first address and bytes (int64). Of an expandable segment, a range is a mapped piece.
        pool, stream: Per range: index into the workload's pools and streams (int32).
        small, expandable: Per range (bool).
        order: Per range: when it was obtained, as far as known; a smaller number is earlier (int64).
        block_range, block_off, block_size: Per block, by address: row of its range, bytes from its base, bytes (int32,
        int64, int64).
        block_tensor: Number of the tensor in it, as in ``Workload.tensor`` (int32).
        block_requested: Bytes that it asked for (int64).
        block_pending: Freed, waiting for a stream (bool): a FREE_COMPLETED of its tensor ends it.
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
    """Calls, one numpy array a column, all of one length.

    Attributes:
        op: Index into ``OPS`` (int8).
        tensor: Number of the allocation that is made, freed, recorded (int32, dense from 0; one number is allocated once at most); -1:
            none.
        size: Bytes asked for; of SET_FRACTION the fraction times 10^9; of EXTERNAL and SET_TOTAL device bytes (int64).
            Of
            POOL_RELEASE 0: its memory is given back at once; 1: with the next that is (a graph that is deleted). Of CAPTURE:
            whether memory in the pool is asked for while a graph is captured, from here on.
        stream: Index into ``streams``; of COMPLETE -1: all (int32). Of RECORD_STREAM: the stream that uses the tensor. Of POOL_BEGIN -1:
            allocations of every stream go to the pool.
        pool: Of ALLOC: index into ``pools`` that the recording saw it in, -1: as the scopes opened by POOL_BEGIN say, else the default
            pool. Of POOL_BEGIN, POOL_END, POOL_RELEASE, CAPTURE: the pool (int32).
        row: Index of the event of the trace after which the call is done; never falls (int64).
        num_rows: Events of the trace.
        num_tensors: Numbers in use.
        streams: Handles of the streams, in increasing unsigned order: the order in which the allocator keeps them
            (uint64).
        pools: Pool ids; the first is the default pool (0, 0).
        no_split: Pools (indices) whose blocks are whole segments, never cut: ``MemPool(no_split=True)``.
        stand_in: Pools that serve a request of the default pool, from what they have free, where the driver has no more:
            ``MemPool(use_on_oom=True)``.
        captured: Pools in which memory is asked for only while a CUDA graph is captured: nothing can be waited for then, so that cached
            memory is not given back to try again. Of a pool of which that holds at times only, calls CAPTURE say when.
        start: What was there before.
        done: When other streams are through: "now" (by the next call), "manual" (at COMPLETE and SYNC) or "recorded"
            (at FREE_COMPLETED).
        capacity_bytes: Bytes of the device as the source says; None: unknown.
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
