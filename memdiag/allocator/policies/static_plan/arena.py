"""Arenas: the memory of a plan, one driver range for each stream, reserved at its first use.

Compiled.

A tensor in an arena is an ordinary block of the engine, so the engine waits for its streams. The block has no
neighbours, and its lanes are those of a pool without requests (``own_pool``). When its free completes, it appears in
the set of such a lane; ``sweep`` removes it and frees its slot.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import Entry, add_entry, new_block, record_oom, record_trace
from memdiag.allocator.engine.driver import device_bytes, new_segment, take_device_bytes
from memdiag.allocator.engine.memory import FREE, LOG_ALL, NONE, Nodes, State, drop_node, record_type
from memdiag.allocator.engine.ordered import remove
from memdiag.allocator.engine.release import lane_of, release_cached_blocks
from memdiag.allocator.engine.streams import synchronize_and_free_events
from memdiag.allocator.policies.static_plan.slots import ROVES, STAY, STEP, SlotPlan, slot_of
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# How a request is served: its own place; a place made for more; a gap that the plan leaves just then. Not from the
# plan: nothing like it is near there, it asks for more than was planned for, its place is taken by something that lives
# longer than it should, there was no memory for the arena. OTHER: no request of the default pool.
WAYS: tuple[str, ...] = (
    "planned",
    "in a larger place",
    "in a gap",
    "not in the plan",
    "larger than planned",
    "place taken",
    "no room",
    "other",
)
OWN, LARGER, IN_GAP, UNKNOWN, TOO_LARGE, TAKEN, NO_ROOM, OTHER = range(8)
# Of an arena: its segment (NONE: not yet), its bytes, those of them that are planned (what roves is above), how many
# places are taken, and whether there was no room for it.
ARENA = record_type("segment", "height", "planned", "num_taken", "is_refused")
# An occupied range of an arena: from ``lower`` to ``upper``.
TAKEN_PLACE = record_type("lower", "upper")


@lean_part
def _place_at(plan: SlotPlan, arena: int, num_taken: int, lower: int) -> int:
    """Returns the number of occupied ranges of an arena that begin below ``low``."""
    left, right = 0, num_taken
    while left < right:
        middle = (left + right) // 2
        if plan.taken[arena, middle].lower < lower:
            left = middle + 1
        else:
            right = middle
    return left


@lean_part
def _is_free(plan: SlotPlan, arena: int, num_taken: int, lower: int, upper: int) -> bool:
    """Returns whether a range of an arena is free."""
    position = _place_at(plan, arena, num_taken, lower)
    return (position == num_taken or plan.taken[arena, position].lower >= upper) and (
        position == 0 or plan.taken[arena, position - 1].upper <= lower
    )


@lean_part
def _open(state: State, nodes: Nodes, log: Array, plan: SlotPlan, arena: int, lane: int) -> bool:
    """Reserves an arena at its first use; returns whether it is available."""
    if plan.arenas[arena].segment != NONE or plan.arenas[arena].is_refused:
        return plan.arenas[arena].segment != NONE
    height = plan.arenas[arena].height
    for attempt in range(2):
        if (state.limit < 0 or state.reserved + height <= state.limit) and take_device_bytes(
            state, device_bytes(height, 0)
        ):
            state.reserved += height
            state.num_device_alloc += 1
            plan.arenas[arena].segment = new_segment(state, nodes, lane, height, 0)
            if state.log_level == LOG_ALL:
                number, stream = nodes[plan.arenas[arena].segment].number, nodes[lane].stream
                add_entry(state, log, Entry(schema.SEGMENT_ALLOC, number, 0, height, stream, 0, -1))
            return True
        if attempt == 0:
            release_cached_blocks(state, nodes, log)
            state.num_alloc_retries += 1
    plan.arenas[arena].is_refused = 1
    return False


@lean_part
def _is_to_come(plan: SlotPlan, slot: int, arena: int, horizon: int) -> bool:
    """Returns whether a slot is one of the next ones of this step, or for a permanent tensor of this step."""
    if plan.slots[slot].arena != arena or plan.slots[slot].offset < 0:
        return False
    if slot >= plan.scripts[STAY].begin:
        return horizon > 0 and plan.slots[slot].cycle == plan.progress.cycle and plan.slots[slot].used < 0
    return 0 <= slot - plan.scripts[STEP].pointer < horizon and plan.slots[slot].used != plan.progress.cycle


@lean_part
def _tightest_gap(plan: SlotPlan, arena: int, size: int, horizon: int, bottom: int, limit: int) -> int:
    """Returns the start of the tightest free gap between occupied ranges that no upcoming slot needs; -1: none."""
    turn = 1 if plan.progress.cycle % 2 == 0 else 0
    num_taken, num_slots, position, slot_position = plan.arenas[arena].num_taken, plan.by_place.shape[1], 0, 0
    end_below, found, tightest = bottom, -1, 1 << 62
    while True:
        while slot_position < num_slots and not _is_to_come(plan, plan.by_place[turn, slot_position], arena, horizon):
            slot_position += 1
        lower, upper = limit, limit
        is_over = position >= num_taken and slot_position >= num_slots
        if slot_position < num_slots:
            slot = plan.by_place[turn, slot_position]
            lower = plan.slots[slot].second if turn and plan.slots[slot].second >= 0 else plan.slots[slot].offset
            upper = lower + plan.slots[slot].size
        if position < num_taken and (slot_position >= num_slots or plan.taken[arena, position].lower <= lower):
            lower, upper = plan.taken[arena, position].lower, plan.taken[arena, position].upper
            position += 1
        else:
            slot_position += 1
        if size <= min(lower, limit) - end_below < tightest:
            found, tightest = end_below, min(lower, limit) - end_below
        end_below = max(end_below, upper)
        if is_over:
            return found


@lean_part
def _mark_taken(plan: SlotPlan, arena: int, lower: int, upper: int) -> None:
    """Marks a range of an arena as occupied."""
    num_taken = plan.arenas[arena].num_taken
    position = _place_at(plan, arena, num_taken, lower)
    for other in range(num_taken, position, -1):
        plan.taken[arena, other].lower, plan.taken[arena, other].upper = (
            plan.taken[arena, other - 1].lower,
            plan.taken[arena, other - 1].upper,
        )
    plan.taken[arena, position].lower, plan.taken[arena, position].upper = lower, upper
    plan.arenas[arena].num_taken = num_taken + 1


@lean_part
def planned_block(
    state: State, nodes: Nodes, log: Array, plan: SlotPlan, arena: int, lane: int, size: int, site: int
) -> tuple[int, int]:
    """Returns the block of a request in the plan (or NONE), and the way in which it was served (``WAYS``)."""
    slot, offset, way = slot_of(plan, size, site, arena), -1, UNKNOWN
    if slot >= 0 and plan.slots[slot].offset == ROVES:
        offset = _tightest_gap(plan, arena, size, 0, plan.arenas[arena].planned, plan.arenas[arena].height)
        way = OWN if offset >= 0 else TAKEN
    elif slot >= 0 and plan.slots[slot].size < size:
        way = TOO_LARGE
    elif slot >= 0:
        way = LARGER if plan.slots[slot].size > size else OWN
        offset, other_offset = plan.slots[slot].offset, plan.slots[slot].second
        if other_offset >= 0 and plan.progress.cycle % 2 == 0:
            offset, other_offset = other_offset, offset
        if not _is_free(plan, arena, plan.arenas[arena].num_taken, offset, offset + size):
            offset = other_offset
            if offset < 0 or not _is_free(plan, arena, plan.arenas[arena].num_taken, offset, offset + size):
                offset, way = -1, TAKEN
    # A small request without a slot goes to the caching allocator, because it may stay for long.
    if offset < 0 and size > SMALL_LIMIT and plan.progress.cycle > 0 and (slot < 0 or slot < plan.scripts[STAY].begin):
        horizon = plan.by_place.shape[1]
        offset = _tightest_gap(plan, arena, size, horizon, 0, plan.arenas[arena].planned)
        # The later a gap is needed by the plan, the more probable it is that this request has been freed by then.
        while offset < 0 and horizon > 0:
            horizon //= 4
            offset = _tightest_gap(plan, arena, size, horizon, 0, plan.arenas[arena].planned)
        if offset >= 0:
            way = IN_GAP
    if offset < 0 or plan.arenas[arena].height == 0:
        return NONE, way
    if not _open(state, nodes, log, plan, arena, lane):
        return NONE, NO_ROOM
    _mark_taken(plan, arena, offset, offset + size)
    return new_block(state, nodes, plan.arenas[arena].segment, offset, size, FREE), way


@lean_part
def own_segment(state: State, nodes: Nodes, log: Array, plan: SlotPlan, lane: int, size: int, tensor: int) -> int:
    """Returns a block in a range of exactly its size; NONE: the device has too little memory."""
    for attempt in range(2):
        if (state.limit < 0 or state.reserved + size <= state.limit) and take_device_bytes(state, size):
            state.reserved += size
            state.num_device_alloc += 1
            block = new_block(state, nodes, new_segment(state, nodes, lane, size, 0), 0, size, FREE)
            record_trace(state, nodes, log, schema.SEGMENT_ALLOC, block, size, -1)
            return block
        if attempt == 0:
            synchronize_and_free_events(state, nodes, log, NONE)
            sweep(state, nodes, log, plan)
            state.num_alloc_retries += 1
    state.num_ooms += 1
    record_oom(state, nodes, log, lane, size, tensor)
    return NONE


@lean_part
def sweep(state: State, nodes: Nodes, log: Array, plan: SlotPlan) -> None:
    """Frees the ranges of blocks whose frees have completed."""
    for arena in range(len(plan.arenas)):
        lane = lane_of(state, plan.progress.own_pool, 0, arena)
        while nodes[lane].succ != lane:
            block = nodes[lane].succ
            remove(nodes, block)
            if plan.progress.is_alone:
                record_trace(state, nodes, log, schema.SEGMENT_FREE, block, nodes[block].size, -1)
                state.reserved -= nodes[block].size
                state.device_free += nodes[block].size
                state.num_device_free += 1
            else:
                num_taken = plan.arenas[arena].num_taken
                for position in range(_place_at(plan, arena, num_taken, nodes[block].offset), num_taken - 1):
                    plan.taken[arena, position].lower, plan.taken[arena, position].upper = (
                        plan.taken[arena, position + 1].lower,
                        plan.taken[arena, position + 1].upper,
                    )
                plan.arenas[arena].num_taken = num_taken - 1
            drop_node(state, nodes, block)
