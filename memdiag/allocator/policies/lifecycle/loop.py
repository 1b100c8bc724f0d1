"""The loop over the calls with MindSpeed's functions instead of those of the caching allocator.

``tables`` predicts lifetimes from earlier windows, unless they are given; ``levels`` finds the memory.
"""

from __future__ import annotations

from memdiag.allocator.engine import loop
from memdiag.allocator.engine.blocks import insert_into_blocks, record_oom, split_tail
from memdiag.allocator.engine.loop import Calls, loop_of, make_live
from memdiag.allocator.engine.memory import NONE, Nodes, State
from memdiag.allocator.engine.release import lane_of, release_cached_blocks
from memdiag.allocator.policies.lifecycle import levels, tables
from memdiag.allocator.policies.lifecycle.marks import (
    FORWARD_BEGIN,
    FORWARD_END,
    PRECISE_BEGIN,
    PRECISE_END,
    RELEASE,
    STEP_BEGIN,
    STEP_END,
)
from memdiag.allocator.policies.lifecycle.pools import DEFAULT, LONG
from memdiag.allocator.policies.lifecycle.tables import FORWARD, FOUND, NEVER, NO_ENTRY, NOTHING_YET, STEP, MindSpeed
from memdiag.allocator.result import OK, OUT_OF_MEMORY, SKIPPED
from memdiag.trace.compiled import lean_part
from memdiag.trace.compiled_sizes import should_split
from memdiag.trace.table import Array

# Two more rows of the results: whether a tensor was classified as long-lived, and the level that served it.
OUT_LONG, OUT_LEVEL = 12, 13
NUM_OWN_RESULTS = 2


@lean_part
def _mark(state: State, nodes: Nodes, log: Array, mindspeed: MindSpeed, kind: int) -> None:
    """Does the work of one of MindSpeed's hooks."""
    if kind == PRECISE_BEGIN or kind == PRECISE_END:
        mindspeed.pools.is_precise = kind == PRECISE_BEGIN
    elif kind == FORWARD_BEGIN:
        if not mindspeed.pools.is_precise:
            if mindspeed.pools.forward_starts > 0:
                mindspeed.pools.in_forward = 1
            mindspeed.pools.forward_starts += 1
        mindspeed.tables[FORWARD].tik = 1
    elif kind == FORWARD_END:
        mindspeed.pools.in_forward = 0
        tables.end(mindspeed, FORWARD)
    elif kind == STEP_BEGIN:
        mindspeed.pools.in_step = 1
        mindspeed.tables[STEP].tik = 1
    elif kind == STEP_END:
        mindspeed.pools.in_step = 0
        tables.end(mindspeed, STEP)
    elif kind == RELEASE:
        release_cached_blocks(state, nodes, log)


@lean_part
def _is_long(mindspeed: MindSpeed, rounded: int, size_number: int, rounded_number: int) -> bool:
    """Returns whether a tensor is classified as long-lived."""
    is_long = False
    mindspeed.tables[STEP].start, mindspeed.tables[STEP].until = mindspeed.tables[STEP].tik, NEVER
    if mindspeed.pools.is_precise:
        is_long = True
    elif mindspeed.pools.in_forward:
        found = tables.look_up(mindspeed, FORWARD, size_number, True)
        is_long = found == NOTHING_YET or (found == FOUND and mindspeed.tables[FORWARD].until == NEVER)
    if (
        mindspeed.pools.in_step
        and not mindspeed.pools.is_precise
        and tables.look_up(mindspeed, STEP, rounded_number, False) == FOUND
    ):
        is_long = is_long or mindspeed.tables[STEP].until == NEVER
    return is_long and rounded > mindspeed.pools.threshold


@lean_part
def prepare(state: State, nodes: Nodes, log: Array, mindspeed: MindSpeed, i: int) -> bool:
    """Applies the next mark before call ``i``; returns whether there was one."""
    pools = mindspeed.pools
    if pools.next_mark >= len(mindspeed.mark_at) or mindspeed.mark_at[pools.next_mark] > i:
        return False
    _mark(state, nodes, log, mindspeed, mindspeed.mark_kind[pools.next_mark])
    pools.next_mark += 1
    return True


@lean_part
def serve(
    state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, mindspeed: MindSpeed, i: int
) -> tuple[int, int, int]:
    """Serves a request; returns its status, the block and its bytes."""
    tensor, size = calls.tensor[i], calls.rounded[i]
    if calls.size[i] <= 0 or tensor < 0:
        return SKIPPED, NONE, -1
    if len(mindspeed.lifetime):
        is_long = mindspeed.lifetime[i] == 1
    else:
        is_long = _is_long(mindspeed, size, mindspeed.size_number[i], mindspeed.rounded_number[i])
    lifetime = LONG if is_long else DEFAULT
    level, block = levels.find(state, nodes, log, mindspeed, size, lifetime, calls.stream[i])
    out[OUT_LONG, i], out[OUT_LEVEL, i] = is_long, level
    if block == NONE:
        state.num_ooms += 1
        record_oom(state, nodes, log, lane_of(state, lifetime, 0, calls.stream[i]), size, tensor)
        return OUT_OF_MEMORY, NONE, -1
    remaining = nodes[block].size - size
    if should_split(remaining, size, nodes[nodes[block].lane].is_small, state.expandable, state.max_split_size):
        insert_into_blocks(state, nodes, split_tail(state, nodes, block, size))
    make_live(state, nodes, log, blocks, block, tensor, calls.size[i])
    _record(mindspeed, tensor, i)
    return OK, block, nodes[block].size


@lean_part
def _record(mindspeed: MindSpeed, tensor: int, i: int) -> None:
    """Records the allocation of a tensor in the tables."""
    recorded, forward, step = mindspeed.recorded[tensor], mindspeed.tables[FORWARD], mindspeed.tables[STEP]
    recorded.forward, recorded.step = NO_ENTRY, NO_ENTRY
    recorded.forward_window, recorded.step_window = forward.window, step.window
    if mindspeed.pools.in_forward:
        recorded.forward = tables.record(mindspeed, FORWARD, mindspeed.size_number[i], i)
    if mindspeed.pools.in_step:
        recorded.step = tables.record(mindspeed, STEP, mindspeed.rounded_number[i], i)
    forward.tik += 1
    step.tik += 1


@lean_part
def free_tensor(
    state: State, nodes: Nodes, log: Array, blocks: Array, mindspeed: MindSpeed, i: int, tensor: int, is_recorded: bool
) -> int:
    """Frees a tensor, and records that in the tables; returns the status."""
    if tensor >= 0 and blocks[tensor] != NONE:
        recorded = mindspeed.recorded[tensor]
        if mindspeed.pools.in_step and recorded.step != NO_ENTRY:
            tables.freed(mindspeed, STEP, recorded.step, recorded.step_window, i)
        if mindspeed.pools.in_forward and recorded.forward != NO_ENTRY:
            tables.freed(mindspeed, FORWARD, recorded.forward, recorded.forward_window, i)
    return loop.free_tensor(state, nodes, log, blocks, mindspeed, i, tensor, is_recorded)


run = loop_of("run_mindspeed", prepare=prepare, serve=serve, free_tensor=free_tensor)
