"""The loop over the calls of a planned replay: a request without a slot in the plan goes to the caching allocator.

All other calls are as in the caching allocator (``memdiag.allocator.engine.loop``).
"""

from __future__ import annotations

from memdiag.allocator.engine import loop
from memdiag.allocator.engine.loop import Calls, loop_of, make_live
from memdiag.allocator.engine.memory import NONE, Nodes, State, round_up
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.engine.streams import process_events
from memdiag.allocator.policies.static_plan.arena import OTHER, own_segment, planned_block, sweep
from memdiag.allocator.policies.static_plan.slots import STEP, SlotPlan
from memdiag.allocator.result import OK, OUT_OF_MEMORY
from memdiag.sizes.cuda import MIN_BLOCK
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# Two more rows of the results: the way a request was served (``arena.WAYS``), and the bytes of the arenas.
OUT_WAY, OUT_ARENAS = 12, 13
NUM_OWN_RESULTS = 2


@lean_part
def prepare(state: State, nodes: Nodes, log: Array, plan: SlotPlan, i: int) -> bool:
    """Begins the next cycle of the plan if call ``i`` begins one."""
    progress = plan.progress
    if plan.cycle[i] != progress.cycle:
        progress.cycle = plan.cycle[i]
        plan.scripts[STEP].pointer, progress.ordinal, progress.strangeness = plan.scripts[STEP].begin, 0, 0
    return False


@lean_part
def serve(
    state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, plan: SlotPlan, i: int
) -> tuple[int, int, int]:
    """Serves a request from the plan, or as the caching allocator does; returns its status, the block and its bytes."""
    out[OUT_WAY, i] = OTHER
    if calls.size[i] <= 0:
        return OK, NONE, -1
    if not plan.progress.is_alone and calls.pool[i] != 0:
        return loop.serve(state, nodes, log, out, calls, blocks, plan, i)
    size, lane = round_up(calls.size[i], MIN_BLOCK), lane_of(state, plan.progress.own_pool, 0, calls.stream[i])
    process_events(state, nodes, log)
    sweep(state, nodes, log, plan)
    if plan.progress.is_alone:
        block = own_segment(state, nodes, log, plan, lane, size, calls.tensor[i])
        if block == NONE:
            return OUT_OF_MEMORY, NONE, -1
    else:
        plan.progress.ordinal += 1
        block, out[OUT_WAY, i] = planned_block(state, nodes, log, plan, calls.stream[i], lane, size, plan.site[i])
        if state.is_broken:
            return OUT_OF_MEMORY, NONE, -1
        if block == NONE:
            return loop.serve(state, nodes, log, out, calls, blocks, plan, i)
    make_live(state, nodes, log, blocks, block, calls.tensor[i], calls.size[i])
    return OK, block, nodes[block].size


@lean_part
def finish(state: State, nodes: Nodes, log: Array, out: Array, plan: SlotPlan, i: int) -> None:
    """Frees the ranges of completed frees, and writes the bytes of the arenas."""
    sweep(state, nodes, log, plan)
    held = 0
    for arena in range(len(plan.arenas)):
        held += plan.arenas[arena].height if plan.arenas[arena].segment != NONE else 0
    out[OUT_ARENAS, i] = held


run = loop_of("run_plan", prepare=prepare, serve=serve, finish=finish)
