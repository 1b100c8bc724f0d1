"""The loop over the calls of a workload.

A policy can replace the functions that the loop calls (``loop_of``); numba compiles the result as one function.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, NamedTuple

from memdiag.allocator.engine.blocks import record_trace
from memdiag.allocator.engine.malloc import malloc
from memdiag.allocator.engine.memory import LIVE, LOG_NOTHING, NONE, PENDING, Nodes, State
from memdiag.allocator.engine.release import lane_of, release_cached_blocks, release_private_pool
from memdiag.allocator.engine.streams import (
    complete_stream,
    free_block,
    free_deferred_of_pool,
    insert_events,
    is_capturing,
    record_stream,
    start_waiting,
    stop_waiting,
    synchronize_and_free_events,
)
from memdiag.allocator.result import OK, OUT_OF_MEMORY, SKIPPED, UNDEFINED
from memdiag.allocator.workload import (
    ALLOC,
    CAPTURE,
    COMPLETE,
    EMPTY_CACHE,
    EXTERNAL,
    FREE,
    FREE_COMPLETED,
    FREE_REQUESTED,
    POOL_BEGIN,
    POOL_END,
    POOL_RELEASE,
    RECORD_STREAM,
    SET_FRACTION,
    SET_TOTAL,
    SYNC,
)
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.trace import schema
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

Own = Any  # a policy's additional state: a tuple of arrays and records


class Calls(NamedTuple):
    """Columns of a workload, int64.

    Attributes:
        op, tensor, stream: As in ``Workload``.
        size: Requested bytes; for SET_FRACTION, the limit (-1: none).
        pool: Pool of each request.
        rounded: Bytes of the block that a request needs; for SET_FRACTION, the bytes above which garbage collection
            runs.
        segment_size: Bytes of the segment that a request needs.
    """

    op: Array
    tensor: Array
    size: Array
    stream: Array
    pool: Array
    rounded: Array
    segment_size: Array


@lean_part
def _unuse(nodes: Nodes, pool: int) -> None:
    """Removes one user of a private pool; without users it can be released (endAllocateToPool, releasePool)."""
    nodes[pool].use_count -= 1
    if nodes[pool].use_count == 0:
        nodes[pool].is_freeable = 1


@lean_part
def _begin_pool(state: State, nodes: Nodes, pool: int) -> None:
    """Opens a scope of a private pool (beginAllocateToPool).

    The allocator fails an assertion if the pool is already open, or was released and still has memory.
    """
    state.num_scopes += 1
    if not nodes[pool].exists:
        nodes[pool].exists, nodes[pool].use_count, nodes[pool].cuda_malloc_count, nodes[pool].is_freeable = 1, 1, 0, 0
        if nodes[pool].use_on_oom_turn and not nodes[pool].use_on_oom:
            state.num_use_on_oom_pools += 1
            nodes[pool].use_on_oom = nodes[pool].use_on_oom_turn
    elif nodes[pool].use_count == 0 or nodes[pool].is_open:
        state.is_broken = 1
    nodes[pool].use_count += 1
    nodes[pool].is_open = 1


@lean_part
def free(state: State, nodes: Nodes, log: Array, block: int, is_recorded: bool) -> None:
    """Frees a block (free); with ``is_recorded``, a later FREE_COMPLETED call completes the free."""
    record_trace(state, nodes, log, schema.FREE_REQUESTED, block, nodes[block].requested_size, nodes[block].tensor)
    state.allocated -= nodes[block].size
    nodes[block].event_count = 0
    if is_recorded:
        start_waiting(state, nodes, block)
        return
    if nodes[block].stream_uses == NONE:
        free_block(state, nodes, log, block)
        return
    nodes[block].kind = PENDING
    if is_capturing(state):
        if state.reuse_needs_capture:
            state.is_broken = 1
        nodes[block].succ = state.first_deferred
        state.first_deferred = block
    else:
        insert_events(state, nodes, block)


@lean_part
def make_live(state: State, nodes: Nodes, log: Array, blocks: Array, block: int, tensor: int, size: int) -> None:
    """Gives a block to the tensor that requested ``size`` bytes (alloc_found_block)."""
    nodes[block].kind, nodes[block].tensor, nodes[block].requested_size, nodes[block].stream_uses = (
        LIVE,
        tensor,
        size,
        NONE,
    )
    blocks[tensor] = block
    state.allocated += nodes[block].size
    state.active += nodes[block].size
    state.requested += size
    record_trace(state, nodes, log, schema.ALLOC, block, size, tensor)


@lean_part
def _change_pool(state: State, nodes: Nodes, log: Array, code: int, index: int, size: int) -> None:
    """Opens or closes a scope of a private pool, releases the pool, or sets whether its requests are captured."""
    pool = state.pools + index
    if code == POOL_BEGIN:
        _begin_pool(state, nodes, pool)
    elif code == POOL_END:
        state.num_scopes -= 1
        nodes[pool].is_open = 0
        if state.scope_end_frees and state.first_deferred != NONE:
            free_deferred_of_pool(state, nodes, log, pool)
        _unuse(nodes, pool)
    elif code == POOL_RELEASE:
        if nodes[pool].use_on_oom and not state.use_on_oom_last:
            state.num_use_on_oom_pools -= 1
            nodes[pool].use_on_oom = 0
        _unuse(nodes, pool)
        if nodes[pool].is_freeable and size == 0:  # emptying one pool waits only for events of that pool's blocks
            synchronize_and_free_events(state, nodes, log, pool)
            release_private_pool(state, nodes, log, index)
    elif code == CAPTURE:
        nodes[pool].is_captured = size


@lean_part
def has_own_room(own: Own, i: int) -> bool:
    """Returns whether the policy's arrays have enough room for call ``i``."""
    return True


@lean_part
def prepare(state: State, nodes: Nodes, log: Array, own: Own, i: int) -> bool:
    """Does the work due before call ``i``; returns True if the loop must check for room again before the call."""
    return False


@lean_part
def serve(
    state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, own: Own, i: int
) -> tuple[int, int, int]:
    """Serves a request; returns its status, the block, and the bytes of the block."""
    if calls.size[i] <= 0:
        return OK, NONE, -1
    size = calls.rounded[i]
    lane = lane_of(state, calls.pool[i], 1 if size <= SMALL_LIMIT else 0, calls.stream[i])
    block = malloc(state, nodes, log, lane, size, calls.segment_size[i], calls.tensor[i])
    if block == NONE:
        return OUT_OF_MEMORY, NONE, -1
    make_live(state, nodes, log, blocks, block, calls.tensor[i], calls.size[i])
    return OK, block, nodes[block].size


@lean_part
def free_tensor(
    state: State, nodes: Nodes, log: Array, blocks: Array, own: Own, i: int, tensor: int, is_recorded: bool
) -> int:
    """Frees a tensor; returns the status. ``is_recorded``: a later call completes the free."""
    block = blocks[tensor] if tensor >= 0 else NONE
    if block == NONE:
        return SKIPPED
    if not is_recorded:
        blocks[tensor] = NONE
    if nodes[block].kind != LIVE:
        return SKIPPED
    free(state, nodes, log, block, is_recorded)
    return OK


@lean_part
def complete_free(state: State, nodes: Nodes, log: Array, blocks: Array, own: Own, tensor: int) -> int:
    """Completes a free at its recorded position; returns the status."""
    block = NONE
    if tensor >= 0:
        block = blocks[tensor]
        blocks[tensor] = NONE
    if block == NONE or nodes[block].kind != PENDING or nodes[block].tensor != tensor:
        return SKIPPED
    stop_waiting(nodes, block)
    free_block(state, nodes, log, block)
    return OK


@lean_part
def use_on_stream(state: State, nodes: Nodes, blocks: Array, own: Own, tensor: int, stream: int) -> int:
    """Records that a stream uses a tensor; returns the status."""
    block = blocks[tensor] if tensor >= 0 else NONE
    if block == NONE or nodes[block].kind != LIVE:
        return SKIPPED
    record_stream(state, nodes, block, stream)
    return OK


@lean_part
def empty_cache(state: State, nodes: Nodes, log: Array, own: Own) -> None:
    """Releases all cached memory (emptyCache)."""
    release_cached_blocks(state, nodes, log)


@lean_part
def finish(state: State, nodes: Nodes, log: Array, out: Array, own: Own, i: int) -> None:
    """Does the work due after call ``i``, before its results are written."""


@lean_part
def _has_room(state: State) -> bool:
    """Returns whether nodes and log suffice for any one call."""
    # A release can split each free block in three and log each block twice; stitching can log a block three times. No
    # other call needs more room.
    if state.capacity - state.fresh < 2 * state.num_nodes + 64:
        return False
    return state.log_level == LOG_NOTHING or state.log_capacity - state.num_logged >= 3 * state.num_nodes + 64


@lean_part
def _write_results(state: State, nodes: Nodes, out: Array, i: int, status: int, block: int, size: int) -> None:
    """Writes the outcome of call ``i`` and the allocator state after it, in the order of ``RESULTS``."""
    out[0, i], out[3, i] = status, size
    out[1, i], out[2, i] = (nodes[nodes[block].segment].number, nodes[block].offset) if block != NONE else (-1, -1)
    out[4, i], out[5, i], out[6, i], out[7, i] = state.reserved, state.allocated, state.active, state.requested
    out[8, i], out[9, i] = state.num_alloc_retries, state.num_ooms
    out[10, i], out[11, i] = state.num_device_alloc, state.num_device_free


def _run(state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, own: Own) -> int:
    """Runs calls from ``state.at`` up to ``state.until``, or until nodes, log or ``own`` must be enlarged.

    Args:
        state, nodes: See ``memory``.
        log, out: Log (LOG_COLUMNS x capacity) and results ((RESULTS and the policy's results) x calls), int64.
        calls: The calls of the program.
        blocks: Block of each tensor, or NONE.
        own: Additional state of the policy.

    Returns:
        The number of calls that have been run.
    """
    end = min(len(calls.op), state.until)
    while True:  # in this form, Python 3.11 specialises the loop when it runs uncompiled
        i = state.at
        if i >= end or not _has_room(state) or not has_own_room(own, i):
            break
        state.call = i
        if prepare(state, nodes, log, own, i):
            continue
        code, tensor, size, stream = calls.op[i], calls.tensor[i], calls.size[i], calls.stream[i]
        status, block, block_size = OK, NONE, -1
        if state.is_broken:
            status = UNDEFINED
        elif code == ALLOC:
            status, block, block_size = serve(state, nodes, log, out, calls, blocks, own, i)
        elif code == FREE or code == FREE_REQUESTED:
            status = free_tensor(state, nodes, log, blocks, own, i, tensor, code == FREE_REQUESTED)
        elif code == FREE_COMPLETED:
            status = complete_free(state, nodes, log, blocks, own, tensor)
        elif code == RECORD_STREAM:
            status = use_on_stream(state, nodes, blocks, own, tensor, stream)
        elif code == EMPTY_CACHE:
            empty_cache(state, nodes, log, own)
        elif code == COMPLETE:
            complete_stream(state, nodes, stream)
        elif code == SYNC:
            complete_stream(state, nodes, -1)
        elif code == SET_FRACTION:
            state.limit = size
            state.gc_begins_at = calls.rounded[i]
        elif code == EXTERNAL:
            state.device_free += state.external - size
            state.external = size
        elif code == SET_TOTAL:  # only new reservations see it; the limit stays with the capacity read at the start
            state.device_free += size - state.device_total
            state.device_total = size
        elif code >= POOL_BEGIN:
            _change_pool(state, nodes, log, code, calls.pool[i], size)
        finish(state, nodes, log, out, own, i)
        if state.is_broken:
            status = UNDEFINED
        _write_results(state, nodes, out, i, status, block, block_size)
        state.at = i + 1
    return state.at


def loop_of(name: str, **functions: Any) -> Any:
    """Returns the compiled loop, with a policy's ``functions`` instead of this module's functions of the same name."""
    unknown = set(functions) - set(globals())
    if unknown:
        raise ValueError(f"the loop calls no {', '.join(unknown)}")
    loop = FunctionType(_run.__code__, {**globals(), **functions}, name)
    loop.__qualname__ = name
    return lean(plain_seconds=1e-5)(loop)


run = loop_of("run_caching")
