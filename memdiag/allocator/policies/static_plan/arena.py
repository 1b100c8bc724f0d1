"""Arenas: the memory of a plan, one range from the driver for each stream, which is got when it is needed first.

Compiled.

What lies in an arena is a block of the engine like any other, so the engine waits for streams; but it has no
neighbours, and its lanes are those of a pool that nobody asks (``own_pool``). When its free has ended it turns up in
the set of such a lane, is taken out again (``sweep``), and its place is free.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import add_entry, new_block, record_oom, record_trace
from memdiag.allocator.engine.driver import device_bytes, new_segment, take_device_bytes
from memdiag.allocator.engine.memory import FREE, LOG_ALL, NONE, Nodes, State, drop_node, record_type
from memdiag.allocator.engine.ordered import remove
from memdiag.allocator.engine.release import lane_of, release_cached_blocks
from memdiag.allocator.engine.streams import synchronize_and_free_events
from memdiag.allocator.policies.static_plan.slots import ROVES, STAY, STEP, Plan, slot_of
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
# A place that is taken: from ``lower`` to ``upper``.
TAKEN_PLACE = record_type("lower", "upper")


@lean_part
def _place_at(plan: Plan, a: int, num: int, low: int) -> int:
    """Returns how many of the taken places of an arena begin below ``low``."""
    left, right = 0, num
    while left < right:
        middle = (left + right) // 2
        if plan.taken[a, middle].lower < low:
            left = middle + 1
        else:
            right = middle
    return left


@lean_part
def _is_free(plan: Plan, a: int, num: int, low: int, high: int) -> bool:
    """Whether nothing lies in a part of an arena."""
    at = _place_at(plan, a, num, low)
    return (at == num or plan.taken[a, at].lower >= high) and (at == 0 or plan.taken[a, at - 1].upper <= low)


@lean_part
def _open(state: State, nodes: Nodes, log: Array, plan: Plan, a: int, lane: int) -> bool:
    """Gets an arena from the driver when it is needed first; whether it is there."""
    if plan.arenas[a].segment != NONE or plan.arenas[a].is_refused:
        return plan.arenas[a].segment != NONE
    height = plan.arenas[a].height
    for attempt in range(2):
        if (state.limit < 0 or state.reserved + height <= state.limit) and take_device_bytes(
            state, device_bytes(height, 0)
        ):
            state.reserved += height
            state.num_device_alloc += 1
            plan.arenas[a].segment = new_segment(state, nodes, lane, height, 0)
            if state.log_level == LOG_ALL:
                add_entry(
                    state,
                    log,
                    schema.SEGMENT_ALLOC,
                    nodes[plan.arenas[a].segment].number,
                    0,
                    height,
                    nodes[lane].stream,
                    0,
                    -1,
                )
            return True
        if attempt == 0:
            release_cached_blocks(state, nodes, log)
            state.num_alloc_retries += 1
    plan.arenas[a].is_refused = 1
    return False


@lean_part
def _is_to_come(plan: Plan, s: int, a: int, horizon: int) -> bool:
    """Whether a slot of an arena is among the next ones of this step, or is for what this step is to leave behind."""
    if plan.slots[s].arena != a or plan.slots[s].offset < 0:
        return False
    if s >= plan.scripts[STAY].begin:
        return horizon > 0 and plan.slots[s].cycle == plan.progress.cycle and plan.slots[s].used < 0
    return 0 <= s - plan.scripts[STEP].pointer < horizon and plan.slots[s].used != plan.progress.cycle


@lean_part
def _gap(plan: Plan, a: int, size: int, horizon: int, bottom: int, limit: int) -> int:
    """Returns the beginning of the tightest gap between two places that nothing lies in and no slot to come is to have; -1: none."""
    turn = 1 if plan.progress.cycle % 2 == 0 else 0
    num, count, p, q = plan.arenas[a].num_taken, plan.by_place.shape[1], 0, 0
    top, best, tightest = bottom, -1, 1 << 62
    while True:
        while q < count and not _is_to_come(plan, plan.by_place[turn, q], a, horizon):
            q += 1
        low, high = limit, limit
        is_over = p >= num and q >= count
        if q < count:
            s = plan.by_place[turn, q]
            low = plan.slots[s].second if turn and plan.slots[s].second >= 0 else plan.slots[s].offset
            high = low + plan.slots[s].size
        if p < num and (q >= count or plan.taken[a, p].lower <= low):
            low, high = plan.taken[a, p].lower, plan.taken[a, p].upper
            p += 1
        else:
            q += 1
        if size <= min(low, limit) - top < tightest:
            best, tightest = top, min(low, limit) - top
        top = max(top, high)
        if is_over:
            return best


@lean_part
def _take(plan: Plan, a: int, low: int, high: int) -> None:
    """Writes down that a part of an arena is taken."""
    num = plan.arenas[a].num_taken
    at = _place_at(plan, a, num, low)
    for p in range(num, at, -1):
        plan.taken[a, p].lower, plan.taken[a, p].upper = plan.taken[a, p - 1].lower, plan.taken[a, p - 1].upper
    plan.taken[a, at].lower, plan.taken[a, at].upper = low, high
    plan.arenas[a].num_taken = num + 1


@lean_part
def planned_block(
    state: State, nodes: Nodes, log: Array, plan: Plan, a: int, lane: int, size: int, site: int
) -> tuple[int, int]:
    """Returns the block of a request in the plan (NONE: it has none), and how it went (``WAYS``)."""
    s, low, way = slot_of(plan, size, site, a), -1, UNKNOWN
    if s >= 0 and plan.slots[s].offset == ROVES:
        low = _gap(plan, a, size, 0, plan.arenas[a].planned, plan.arenas[a].height)
        way = OWN if low >= 0 else TAKEN
    elif s >= 0 and plan.slots[s].size < size:
        way = TOO_LARGE
    elif s >= 0:
        way = LARGER if plan.slots[s].size > size else OWN
        low, other = plan.slots[s].offset, plan.slots[s].second
        if other >= 0 and plan.progress.cycle % 2 == 0:
            low, other = other, low
        if not _is_free(plan, a, plan.arenas[a].num_taken, low, low + size):
            low = other
            if low < 0 or not _is_free(plan, a, plan.arenas[a].num_taken, low, low + size):
                low, way = -1, TAKEN
    # A small request without a place goes to the caching allocator: it may stay for long.
    if low < 0 and size > SMALL_LIMIT and plan.progress.cycle > 0 and (s < 0 or s < plan.scripts[STAY].begin):
        horizon = plan.by_place.shape[1]
        low = _gap(plan, a, size, horizon, 0, plan.arenas[a].planned)
        while low < 0 and horizon > 0:  # the later the place is needed, the better the chance that it is free by then
            horizon //= 4
            low = _gap(plan, a, size, horizon, 0, plan.arenas[a].planned)
        if low >= 0:
            way = IN_GAP
    if low < 0 or plan.arenas[a].height == 0:
        return NONE, way
    if not _open(state, nodes, log, plan, a, lane):
        return NONE, NO_ROOM
    _take(plan, a, low, low + size)
    return new_block(state, nodes, plan.arenas[a].segment, low, size, FREE), way


@lean_part
def own_segment(state: State, nodes: Nodes, log: Array, plan: Plan, lane: int, size: int, tensor: int) -> int:
    """Returns a block that is a range of just its size; NONE: there is no room for it."""
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
def sweep(state: State, nodes: Nodes, log: Array, plan: Plan) -> None:
    """Makes the places free whose blocks' frees have ended."""
    for a in range(len(plan.arenas)):
        lane = lane_of(state, plan.progress.own_pool, 0, a)
        while nodes[lane].succ != lane:
            block = nodes[lane].succ
            remove(nodes, block)
            if plan.progress.is_alone:
                record_trace(state, nodes, log, schema.SEGMENT_FREE, block, nodes[block].size, -1)
                state.reserved -= nodes[block].size
                state.device_free += nodes[block].size
                state.num_device_free += 1
            else:
                num = plan.arenas[a].num_taken
                for p in range(_place_at(plan, a, num, nodes[block].offset), num - 1):
                    plan.taken[a, p].lower, plan.taken[a, p].upper = (
                        plan.taken[a, p + 1].lower,
                        plan.taken[a, p + 1].upper,
                    )
                plan.arenas[a].num_taken = num - 1
            drop_node(state, nodes, block)
