"""The compiled replay of a plan: each request is looked for in the plan, and goes to the caching allocator where it has no place there.

All but requests is as in the machine of the caching allocator (``memdiag.allocator.machine.run``).
"""

from __future__ import annotations

from memdiag.allocator.machine.blocks import note
from memdiag.allocator.machine.malloc import allocate

from memdiag.allocator.machine.memory import (  # isort: skip
    ACTIVE, ALLOCATED, AT, BAR, CALL, CAPACITY, DEVICE_ALLOCS, DEVICE_BYTES, DEVICE_FREES, FREEABLE, FREE_BYTES, FRESH, IS_BROKEN,
    IS_LOGGED, IS_OPEN, LENDS_LAST, LIMIT, LIVE, LOG_CAPACITY, NONE, NUMBER, NUM_LOGGED, NUM_ROWS, NUM_SCOPES, NUM_STAND_IN, OFF, OOMS,
    OTHERS, PENDING, POOLS, RANGE, REQUESTED, REQUESTED_BYTES, RESERVED, RETRIES, ROW, SIZE, STANDS_IN, STATE, TENSOR, USES, up,
)  # fmt: skip
from memdiag.allocator.machine.release import flush, lane_of, release_pool

from memdiag.allocator.machine.run import (  # isort: skip
    NUM_OUT as NUM_OF_MACHINE, OUT_ACTIVE, OUT_ALLOCATED, OUT_BLOCK, OUT_DEVICE_ALLOCS, OUT_DEVICE_FREES, OUT_OFF, OUT_OOMS, OUT_REQUESTED,
    OUT_RESERVED, OUT_RETRIES, OUT_SEG, OUT_STATUS, _begin_pool, _release, _unuse,
)  # fmt: skip
from memdiag.allocator.machine.streams import complete, finish, poll, stop_waiting, use, wait
from memdiag.allocator.planned.arena import A_HEIGHT, A_RANGE, OTHER, alone, planned, sweep
from memdiag.allocator.planned.slots import BEGIN, CYCLE, IS_ALONE, ORDINAL, OWN_POOL, POINTER, STEP, STRANGENESS
from memdiag.allocator.result import OUT_OF_MEMORY, SKIPPED, UNDEFINED

from memdiag.allocator.workload import (  # isort: skip
    ALLOC, COMPLETE, EMPTY_CACHE, EXTERNAL, FREE, FREE_COMPLETED, FREE_REQUESTED, POOL_BEGIN, POOL_END, POOL_RELEASE, RECORD_STREAM,
    SET_FRACTION, SET_TOTAL, SYNC,
)  # fmt: skip
from memdiag.trace import schema
from memdiag.trace.compiled import lean
from memdiag.trace.table import Array

# Two more rows of the result: how a request was served (``arena.WAYS``), and what the arenas hold.
OUT_WAY, OUT_ARENAS = NUM_OF_MACHINE, NUM_OF_MACHINE + 1
NUM_OUT = NUM_OF_MACHINE + 2
GRAIN = 512
_SMALL = 1 << 20  # the largest request of the small half of a pool


@lean
def run(r: Array, m: Array, log: Array, k: Array, slots: Array, arenas: Array, taken: Array, by_place: Array, out: Array, where: Array,
        op: Array, tensor: Array, size: Array, stream: Array, pool: Array, site: Array, cycle: Array,
        rounded: Array, segment_size: Array) -> int:  # fmt: skip
    """Makes calls from ``r[AT]`` on until the last one, or until the memory of the machine must be larger.

    Args:
        r, m, log, out, where, op, tensor, size, stream, pool, rounded, segment_size: As of ``machine.run``; ``out`` has NUM_OUT rows.
        k: What goes on in the plan (NUM_STATE values).
        slots: The plan: columns SLOT_… x slots, script by script.
        arenas: Columns NUM_ARENA x streams.
        taken: Of each arena beginnings and ends of the places in use, by address (streams x 2 x as many as there can be).
        by_place: Slots of steps and of what stays by their places, in odd steps and in even ones (2 x slots).
        site: Of each request: where in the program it is made; -1: unknown.
        cycle: Of each call: 0 in initialisation, then the number of the step, never falling.

    Returns:
        The number of calls made so far.
    """
    n = len(op)
    i = r[AT]
    while i < n:
        # A release can cut each free block in three and log each block twice; nothing else needs as much.
        if r[CAPACITY] - r[FRESH] < (2 * r[NUM_ROWS] + 64) * ROW or (
            r[IS_LOGGED] and r[LOG_CAPACITY] - r[NUM_LOGGED] < 3 * r[NUM_ROWS] + 64
        ):
            break
        r[CALL] = i
        if cycle[i] != k[CYCLE]:
            k[CYCLE] = cycle[i]
            k[POINTER + STEP], k[ORDINAL], k[STRANGENESS] = k[BEGIN + STEP], 0, 0
        code, t = op[i], tensor[i]
        status, way = 0, OTHER
        seg, off, block_size = -1, -1, -1
        if r[IS_BROKEN]:
            status = UNDEFINED
        elif code == ALLOC:
            if size[i] > 0:
                lane, block = lane_of(r, k[OWN_POOL], 0, stream[i]), NONE
                if k[IS_ALONE]:
                    poll(r, m, log)
                    sweep(r, m, log, k, arenas, taken)
                    block = alone(r, m, log, k, arenas, taken, lane, up(size[i], GRAIN), t)
                else:
                    if pool[i] == 0:
                        poll(r, m, log)
                        sweep(r, m, log, k, arenas, taken)
                        k[ORDINAL] += 1
                        block, way = planned(r, m, log, k, slots, arenas, taken, by_place, stream[i], lane, up(size[i], GRAIN), site[i])
                    if block == NONE and not r[IS_BROKEN]:
                        small = 1 if rounded[i] <= _SMALL else 0
                        block = allocate(r, m, log, lane_of(r, pool[i], small, stream[i]), rounded[i], segment_size[i], t)
                if block == NONE:
                    status = OUT_OF_MEMORY
                else:
                    m[block + STATE], m[block + TENSOR], m[block + REQUESTED], m[block + USES] = LIVE, t, size[i], NONE
                    where[t] = block
                    block_size = m[block + SIZE]
                    r[ALLOCATED] += block_size
                    r[ACTIVE] += block_size
                    r[REQUESTED_BYTES] += size[i]
                    seg, off = m[m[block + RANGE] + NUMBER], m[block + OFF]
                    note(r, m, log, schema.ALLOC, block, size[i], t)
        elif code == FREE or code == FREE_REQUESTED:
            block = where[t] if t >= 0 else NONE
            if block == NONE:
                status = SKIPPED
            else:
                if code == FREE:
                    where[t] = NONE
                if m[block + STATE] == LIVE:
                    _release(r, m, log, block, code == FREE_REQUESTED)
                else:
                    status = SKIPPED
        elif code == FREE_COMPLETED:
            block = NONE
            if t >= 0:
                block = where[t]
                where[t] = NONE
            if block != NONE and m[block + STATE] == PENDING and m[block + TENSOR] == t:
                stop_waiting(m, block)
                finish(r, m, log, block)
            else:
                status = SKIPPED
        elif code == RECORD_STREAM:
            block = where[t] if t >= 0 else NONE
            if block == NONE or m[block + STATE] != LIVE:
                status = SKIPPED
            else:
                use(r, m, block, stream[i])
        elif code == EMPTY_CACHE:
            flush(r, m, log)
        elif code == COMPLETE:
            complete(r, m, stream[i])
        elif code == SYNC:
            complete(r, m, -1)
        elif code == SET_FRACTION:
            r[LIMIT] = size[i]
            r[BAR] = rounded[i]
        elif code == POOL_BEGIN:
            _begin_pool(r, m, r[POOLS] + pool[i] * ROW)
        elif code == POOL_END:
            r[NUM_SCOPES] -= 1
            m[r[POOLS] + pool[i] * ROW + IS_OPEN] = 0
            _unuse(m, r[POOLS] + pool[i] * ROW)
        elif code == POOL_RELEASE:
            row = r[POOLS] + pool[i] * ROW
            if m[row + STANDS_IN] and not r[LENDS_LAST]:
                r[NUM_STAND_IN] -= 1
                m[row + STANDS_IN] = 0
            _unuse(m, row)
            if m[row + FREEABLE]:
                wait(r, m, log, row)
                release_pool(r, m, log, pool[i])
        elif code == EXTERNAL:
            r[FREE_BYTES] += r[OTHERS] - size[i]
            r[OTHERS] = size[i]
        elif code == SET_TOTAL:
            r[FREE_BYTES] += size[i] - r[DEVICE_BYTES]
            r[DEVICE_BYTES] = size[i]
        sweep(r, m, log, k, arenas, taken)
        if r[IS_BROKEN]:
            status = UNDEFINED
        arena_bytes = 0
        for a in range(arenas.shape[1]):
            arena_bytes += arenas[A_HEIGHT, a] if arenas[A_RANGE, a] != NONE else 0
        out[OUT_STATUS, i], out[OUT_SEG, i], out[OUT_OFF, i], out[OUT_BLOCK, i] = status, seg, off, block_size
        out[OUT_RESERVED, i], out[OUT_ALLOCATED, i] = r[RESERVED], r[ALLOCATED]
        out[OUT_ACTIVE, i], out[OUT_REQUESTED, i] = r[ACTIVE], r[REQUESTED_BYTES]
        out[OUT_RETRIES, i], out[OUT_OOMS, i] = r[RETRIES], r[OOMS]
        out[OUT_DEVICE_ALLOCS, i], out[OUT_DEVICE_FREES, i] = r[DEVICE_ALLOCS], r[DEVICE_FREES]
        out[OUT_WAY, i], out[OUT_ARENAS, i] = way, arena_bytes
        i += 1
    r[AT] = i
    return i
