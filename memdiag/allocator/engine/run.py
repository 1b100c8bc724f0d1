"""The machine itself: one loop over the calls of a workload."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace
from memdiag.allocator.engine.malloc import malloc

from memdiag.allocator.engine.memory import (  # isort: skip
    ACTIVE, ALLOCATED, AT, BAR, CALL, CAPACITY, COUNT, DEFERRED, DEVICE_ALLOCS, DEVICE_BYTES, DEVICE_FREES, EVENTS, FREEABLE, FREE_BYTES,
    FRESH, IS_BROKEN, IS_CAPTURED, IS_LOGGED, IS_OPEN, KNOWN, LENDS_LAST, LIMIT, LIVE, LOG_CAPACITY, NONE, NUMBER, NUM_LOGGED, NUM_ROWS,
    NUM_SCOPES, NUM_STAND_IN, OFF, OOMS, OTHERS, PENDING, POOLS, RANGE, REQUESTED, REQUESTED_BYTES, RESERVED, RETRIES, REUSE_NEEDS_CAPTURE,
    ROW, SCOPE_END_FREES, SIZE, STANDS_IN, STATE, SUCC, TENSOR, TURN, UNTIL, USERS, USES,
)  # fmt: skip
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
from memdiag.allocator.result import OUT_OF_MEMORY, SKIPPED, UNDEFINED

from memdiag.allocator.workload import (  # isort: skip
    ALLOC, CAPTURE, COMPLETE, EMPTY_CACHE, EXTERNAL, FREE, FREE_COMPLETED, FREE_REQUESTED, POOL_BEGIN, POOL_END, POOL_RELEASE,
    RECORD_STREAM, SET_FRACTION, SET_TOTAL, SYNC,
)  # fmt: skip
from memdiag.trace import schema
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

# Rows of the result.
(
    OUT_STATUS, OUT_SEG, OUT_OFF, OUT_BLOCK, OUT_RESERVED, OUT_ALLOCATED, OUT_ACTIVE, OUT_REQUESTED, OUT_RETRIES, OUT_OOMS,
    OUT_DEVICE_ALLOCS, OUT_DEVICE_FREES, NUM_OUT,
) = range(13)  # fmt: skip
_SMALL = 1 << 20


@lean_part
def _unuse(m: Array, pool: int) -> None:
    """One user of a private pool less; without any it can be given back."""
    m[pool + USERS] -= 1
    if m[pool + USERS] == 0:
        m[pool + FREEABLE] = 1


@lean_part
def _begin_pool(r: Array, m: Array, pool: int) -> None:
    """Opens a scope of a private pool. One that is open, or was released and still holds memory, cannot be begun: an assertion."""
    r[NUM_SCOPES] += 1
    if not m[pool + KNOWN]:
        m[pool + KNOWN], m[pool + USERS], m[pool + COUNT], m[pool + FREEABLE] = 1, 1, 0, 0
        if m[pool + TURN] and not m[pool + STANDS_IN]:
            r[NUM_STAND_IN] += 1
            m[pool + STANDS_IN] = m[pool + TURN]
    elif m[pool + USERS] == 0 or m[pool + IS_OPEN]:
        r[IS_BROKEN] = 1
    m[pool + USERS] += 1
    m[pool + IS_OPEN] = 1


@lean_part
def free(r: Array, m: Array, log: Array, block: int, recorded: bool) -> None:
    """Takes a block back. ``recorded``: it is free again only when the recording says so."""
    record_trace(r, m, log, schema.FREE_REQUESTED, block, m[block + REQUESTED], m[block + TENSOR])
    r[ALLOCATED] -= m[block + SIZE]
    m[block + EVENTS] = 0
    if recorded:
        start_waiting(r, m, block)
        return
    if m[block + USES] == NONE:
        free_block(r, m, log, block)
        return
    m[block + STATE] = PENDING
    if is_capturing(r):
        if r[REUSE_NEEDS_CAPTURE]:
            r[IS_BROKEN] = 1
        m[block + SUCC] = r[DEFERRED]
        r[DEFERRED] = block
    else:
        insert_events(r, m, block)


@lean_part
def make_live(r: Array, m: Array, log: Array, where: Array, block: int, tensor: int, size: int) -> None:
    """Gives a block to the tensor that asked for ``size`` bytes."""
    m[block + STATE], m[block + TENSOR], m[block + REQUESTED], m[block + USES] = LIVE, tensor, size, NONE
    where[tensor] = block
    r[ALLOCATED] += m[block + SIZE]
    r[ACTIVE] += m[block + SIZE]
    r[REQUESTED_BYTES] += size
    record_trace(r, m, log, schema.ALLOC, block, size, tensor)


@lean_part
def serve_other(
    r: Array, m: Array, log: Array, where: Array, code: int, t: int, size: int, stream: int, pool: int, rounded: int
) -> int:  # fmt: skip
    """Makes a call that is no request, with what the columns of ``run`` say of it. Returns its status."""
    status = 0
    if code == FREE or code == FREE_REQUESTED:
        block = where[t] if t >= 0 else NONE
        if block == NONE:
            status = SKIPPED
        else:
            if code == FREE:
                where[t] = NONE
            if m[block + STATE] == LIVE:
                free(r, m, log, block, code == FREE_REQUESTED)
            else:
                status = SKIPPED
    elif code == FREE_COMPLETED:
        block = NONE
        if t >= 0:
            block = where[t]
            where[t] = NONE
        if block != NONE and m[block + STATE] == PENDING and m[block + TENSOR] == t:
            stop_waiting(m, block)
            free_block(r, m, log, block)
        else:
            status = SKIPPED
    elif code == RECORD_STREAM:
        block = where[t] if t >= 0 else NONE
        if block == NONE or m[block + STATE] != LIVE:
            status = SKIPPED
        else:
            record_stream(r, m, block, stream)
    elif code == EMPTY_CACHE:
        release_cached_blocks(r, m, log)
    elif code == COMPLETE:
        complete_stream(r, m, stream)
    elif code == SYNC:
        complete_stream(r, m, -1)
    elif code == SET_FRACTION:
        r[LIMIT] = size
        r[BAR] = rounded
    elif code == POOL_BEGIN:
        _begin_pool(r, m, r[POOLS] + pool * ROW)
    elif code == POOL_END:
        r[NUM_SCOPES] -= 1
        m[r[POOLS] + pool * ROW + IS_OPEN] = 0
        if r[SCOPE_END_FREES] and r[DEFERRED] != NONE:
            free_deferred_of_pool(r, m, log, r[POOLS] + pool * ROW)
        _unuse(m, r[POOLS] + pool * ROW)
    elif code == POOL_RELEASE:
        row = r[POOLS] + pool * ROW
        if m[row + STANDS_IN] and not r[LENDS_LAST]:
            r[NUM_STAND_IN] -= 1
            m[row + STANDS_IN] = 0
        _unuse(m, row)
        if m[row + FREEABLE] and size == 0:  # emptying one pool waits for the events of its own blocks only
            synchronize_and_free_events(r, m, log, row)
            release_private_pool(r, m, log, pool)
    elif code == EXTERNAL:
        r[FREE_BYTES] += r[OTHERS] - size
        r[OTHERS] = size
    elif code == CAPTURE:
        m[r[POOLS] + pool * ROW + IS_CAPTURED] = size
    elif code == SET_TOTAL:  # seen by new reservations only; the limit stays with the capacity read at the start
        r[FREE_BYTES] += size - r[DEVICE_BYTES]
        r[DEVICE_BYTES] = size
    return status


@lean_part
def has_room(r: Array) -> bool:
    """Returns whether memory and log suffice for any one call."""
    # A release can cut each free block in three and log each block twice; nothing else needs as much.
    rows = r[NUM_ROWS]
    enough: bool = r[CAPACITY] - r[FRESH] >= (2 * rows + 64) * ROW and (
        r[IS_LOGGED] == 0 or r[LOG_CAPACITY] - r[NUM_LOGGED] >= 3 * rows + 64
    )
    return enough


@lean_part
def write_result(r: Array, out: Array, i: int, status: int, seg: int, off: int, block_size: int) -> None:
    """Writes what stands after call ``i``."""
    out[OUT_STATUS, i], out[OUT_SEG, i], out[OUT_OFF, i], out[OUT_BLOCK, i] = status, seg, off, block_size
    out[OUT_RESERVED, i], out[OUT_ALLOCATED, i] = r[RESERVED], r[ALLOCATED]
    out[OUT_ACTIVE, i], out[OUT_REQUESTED, i] = r[ACTIVE], r[REQUESTED_BYTES]
    out[OUT_RETRIES, i], out[OUT_OOMS, i] = r[RETRIES], r[OOMS]
    out[OUT_DEVICE_ALLOCS, i], out[OUT_DEVICE_FREES, i] = r[DEVICE_ALLOCS], r[DEVICE_FREES]


@lean
def run(r: Array, m: Array, log: Array, out: Array, where: Array, op: Array, tensor: Array, size: Array, stream: Array, pool: Array,
        rounded: Array, segment_size: Array) -> int:  # fmt: skip
    """Makes calls from ``r[AT]`` on until the last one or ``r[UNTIL]``, or until the memory of the machine must be larger.

    Args:
        r, m, log, out: Registers, memory, log (columns x room) and results (rows OUT_… x calls), all int64.
        where: Block of each tensor; 0: none.
        op, tensor, size, stream, pool: As of the workload; pool is known for every request. Size is bytes requested; of SET_FRACTION the
            limit (-1: none).
        rounded, segment_size: Bytes of the block and of the segment that a request needs; of SET_FRACTION: where garbage collection
            begins.

    Returns:
        The number of calls made so far.
    """
    n = min(len(op), r[UNTIL])
    i = r[AT]
    while i < n:
        if not has_room(r):
            break
        r[CALL] = i
        code, t = op[i], tensor[i]
        status = 0
        seg, off, block_size = -1, -1, -1
        if r[IS_BROKEN]:
            status = UNDEFINED
        elif code == ALLOC:
            if size[i] > 0:
                small = 1 if rounded[i] <= _SMALL else 0
                block = malloc(r, m, log, lane_of(r, pool[i], small, stream[i]), rounded[i], segment_size[i], t)
                if block == NONE:
                    status = OUT_OF_MEMORY
                else:
                    make_live(r, m, log, where, block, t, size[i])
                    seg, off, block_size = m[m[block + RANGE] + NUMBER], m[block + OFF], m[block + SIZE]
        else:
            status = serve_other(r, m, log, where, code, t, size[i], stream[i], pool[i], rounded[i])
        if r[IS_BROKEN]:
            status = UNDEFINED
        write_result(r, out, i, status, seg, off, block_size)
        i += 1
    r[AT] = i
    return i
