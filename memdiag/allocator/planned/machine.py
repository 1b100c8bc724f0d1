"""The compiled replay of a plan: each request is looked for in the plan, and goes to the caching allocator where it has no place there.

All but requests is as in the machine of the caching allocator (``memdiag.allocator.engine.run``).
"""

from __future__ import annotations

from memdiag.allocator.engine.malloc import malloc
from memdiag.allocator.engine.memory import AT, CALL, IS_BROKEN, NONE, NUMBER, OFF, RANGE, SIZE, up
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.engine.run import NUM_OUT as NUM_OF_MACHINE
from memdiag.allocator.engine.run import has_room, make_live, serve_other, write_result
from memdiag.allocator.engine.streams import process_events
from memdiag.allocator.planned.arena import A_HEIGHT, A_RANGE, OTHER, alone, planned, sweep
from memdiag.allocator.planned.slots import BEGIN, CYCLE, IS_ALONE, ORDINAL, OWN_POOL, POINTER, STEP, STRANGENESS
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED
from memdiag.allocator.workload import ALLOC
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
        if not has_room(r):
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
                    process_events(r, m, log)
                    sweep(r, m, log, k, arenas, taken)
                    block = alone(r, m, log, k, arenas, taken, lane, up(size[i], GRAIN), t)
                else:
                    if pool[i] == 0:
                        process_events(r, m, log)
                        sweep(r, m, log, k, arenas, taken)
                        k[ORDINAL] += 1
                        block, way = planned(r, m, log, k, slots, arenas, taken, by_place, stream[i], lane, up(size[i], GRAIN), site[i])
                    if block == NONE and not r[IS_BROKEN]:
                        small = 1 if rounded[i] <= _SMALL else 0
                        block = malloc(r, m, log, lane_of(r, pool[i], small, stream[i]), rounded[i], segment_size[i], t)
                if block == NONE:
                    status = OUT_OF_MEMORY
                else:
                    make_live(r, m, log, where, block, t, size[i])
                    seg, off, block_size = m[m[block + RANGE] + NUMBER], m[block + OFF], m[block + SIZE]
        else:
            status = serve_other(r, m, log, where, code, t, size[i], stream[i], pool[i], rounded[i])
        sweep(r, m, log, k, arenas, taken)
        if r[IS_BROKEN]:
            status = UNDEFINED
        arena_bytes = 0
        for a in range(arenas.shape[1]):
            arena_bytes += arenas[A_HEIGHT, a] if arenas[A_RANGE, a] != NONE else 0
        write_result(r, out, i, status, seg, off, block_size)
        out[OUT_WAY, i], out[OUT_ARENAS, i] = way, arena_bytes
        i += 1
    r[AT] = i
    return i
