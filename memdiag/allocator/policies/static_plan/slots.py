"""Slots: requests with offsets in a plan, and the search for the slot of a request. Compiled.

There are three scripts in a row: the requests of initialisation, those of a step, and the permanent tensors that steps
leave. Each has a pointer to its current position. A request searches near the pointer for a slot of its size and
allocation site, so one differing request does not affect the slots of others. A step of another shape (a shorter batch)
requests other sizes in the same order. It is followed slot by slot, and its smaller requests use the larger slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memdiag.allocator.engine.memory import record_type
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# A slot: bytes of its place, where in the program it was requested, arena, offsets of its places (second -1: it has
# one), the cycle that has used it; the cycle that it was recorded in, and as which of its requests.
SLOT = record_type("size", "site", "arena", "offset", "second", "used", "cycle", "ordinal")
# Scripts: rows of slots in order, for the requests of initialisation, of a step, and for permanent tensors that steps
# leave. Each has its begin, current position and end.
SCRIPT = record_type("begin", "pointer", "end")
INIT, STEP, STAY, NUM_SCRIPTS = range(4)
# cycle: 0 in initialisation, then the number of the step. ordinal: requests of the cycle so far. strangeness: number of
# the latest 1024 requests that were smaller than planned. is_alone: each request has a separate segment. own_pool: the
# pool of the arenas.
PROGRESS = record_type("cycle", "ordinal", "strangeness", "is_alone", "own_pool")
ROVES = -2  # instead of an offset: the request uses any range in the area for roving requests

AHEAD = 512  # number of slots by which a step may deviate from the plan
NEAR = 8  # number of slots within which a request from the same line matches, even with another size
_STRANGE = 128  # strangeness above which a step is of another shape
_SAME, _ROOMY, _UNSITED, _SHORT = range(4)


class SlotPlan(NamedTuple):
    """A plan and its progress in a run.

    Attributes:
        progress, scripts, slots, arenas: Records.
        taken: Occupied ranges of each arena by address: ``lower`` and ``upper`` (streams x capacity).
        by_place: Slots of steps and of permanent tensors, sorted by offset in odd and in even steps (2 x slots).
        site: Per request, number of the allocation site; -1: unknown.
        cycle: Per call, 0 in initialisation, then the number of the step, not decreasing.
    """

    progress: Any
    scripts: Any
    slots: Any
    arenas: Any
    taken: Any
    by_place: Array
    site: Array
    cycle: Array


@lean_part
def _fits(plan: SlotPlan, slot: int, how: int, size: int, site: int) -> bool:
    """Returns whether a slot matches the request."""
    if how == _SAME:
        return plan.slots[slot].size == size and plan.slots[slot].site == site
    if how == _ROOMY:
        return plan.slots[slot].size > size and plan.slots[slot].site == site
    if how == _UNSITED:
        return plan.slots[slot].size == size and (plan.slots[slot].site < 0 or site < 0)
    return plan.slots[slot].size < size and plan.slots[slot].site == site


@lean_part
def _nearest(plan: SlotPlan, script: int, how: int, reach: int, size: int, site: int, arena: int) -> int:
    """Returns the unused matching slot of a script nearest to its current position; -1: none within reach."""
    begin, end, pointer = plan.scripts[script].begin, plan.scripts[script].end, plan.scripts[script].pointer
    for distance in range(reach):
        slot = pointer + distance
        if (
            slot < end
            and plan.slots[slot].used != plan.progress.cycle
            and plan.slots[slot].arena == arena
            and _fits(plan, slot, how, size, site)
        ):
            return slot
        slot = pointer - distance - 1
        if (
            slot >= begin
            and plan.slots[slot].used != plan.progress.cycle
            and plan.slots[slot].arena == arena
            and _fits(plan, slot, how, size, site)
        ):
            return slot
        if pointer + distance >= end and slot < begin:
            return -1
    return -1


@lean_part
def _stays(plan: SlotPlan, size: int, site: int, arena: int) -> int:
    """Returns the nearest slot of a similar permanent tensor of this step; -1: none."""
    for slot in range(plan.scripts[STAY].pointer, plan.scripts[STAY].end):
        late = plan.slots[slot].ordinal - plan.progress.ordinal
        if plan.slots[slot].cycle > plan.progress.cycle or (
            plan.slots[slot].cycle == plan.progress.cycle and late > NEAR
        ):
            return -1
        is_due = plan.slots[slot].cycle == plan.progress.cycle and late >= -NEAR and plan.slots[slot].used < 0
        if is_due and plan.slots[slot].arena == arena and _fits(plan, slot, _SAME, size, site):
            return slot
    return -1


@lean_part
def slot_of(plan: SlotPlan, size: int, site: int, arena: int) -> int:
    """Returns the slot of a request and continues from there; -1: the plan has no similar request."""
    script, slot = INIT, -1
    if plan.progress.cycle > 0:
        script, pointer = STEP, plan.scripts[STEP].pointer
        slot = _stays(plan, size, site, arena)
        if slot >= 0:
            script = STAY
        elif (
            plan.progress.strangeness > _STRANGE
            and pointer < plan.scripts[STEP].end
            and plan.slots[pointer].arena == arena
            and plan.slots[pointer].used != plan.progress.cycle
        ):
            # A step of another shape follows the plan slot by slot, and equal sizes are coincidence.
            slot = pointer if plan.slots[pointer].site == site and plan.slots[pointer].size >= size else -1
    if slot < 0:
        slot = _nearest(plan, script, _SAME, AHEAD, size, site, arena)
    if slot < 0:
        slot = _nearest(plan, script, _UNSITED, AHEAD, size, site, arena)
    if slot < 0:
        slot = _nearest(plan, script, _ROOMY, NEAR, size, site, arena)
    if slot < 0:
        slot = _nearest(plan, script, _SHORT, NEAR, size, site, arena)
    if slot >= 0:
        plan.slots[slot].used = plan.progress.cycle
        plan.scripts[script].pointer = slot + 1
        if script == STEP:
            plan.progress.strangeness += (
                (0 if plan.slots[slot].size == size else 1024) - plan.progress.strangeness
            ) // 8
    return slot
