"""Slots: requests that have places in a plan, and how a request of a run finds its own. Compiled.

Three scripts stand one after the other: what initialisation asks for, what a step does, and what steps leave behind for
good. In each there is a pointer to where it goes on. A request looks around it for a slot of its size that was made for
the same line of the program; one that differs then costs no other its place. A step of another shape (a shorter batch)
asks for other sizes in the same order: it is followed slot by slot, and places that were made for more serve less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memdiag.allocator.engine.memory import record_type
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# A slot: bytes of its place, where in the program it was requested, arena, offsets of its places (second -1: it has
# one), the cycle that has used it; the cycle that it was recorded in, and as which of its requests.
SLOT = record_type("size", "site", "arena", "offset", "second", "used", "cycle", "ordinal")
# Scripts: rows of slots in order. What initialisation requests, what a step requests, and what steps leave behind for
# good. Of each: where it begins, goes on, ends.
SCRIPT = record_type("begin", "pointer", "end")
INIT, STEP, STAY, NUM_SCRIPTS = range(4)
# cycle: 0 in initialisation, then the number of the step; ordinal: requests of the cycle so far; strangeness: how many
# of the latest 1024 asked for less than planned; is_alone: each request has a segment of its own; own_pool: the pool of
# the arenas.
PROGRESS = record_type("cycle", "ordinal", "strangeness", "is_alone", "own_pool")
ROVES = -2  # in place of a place: it takes any in the room for what roves

AHEAD = 512  # slots that a step may be out of step with the plan
NEAR = 8  # slots within which a request from the same line is the same one, whatever it asks for
_STRANGE = 128  # strangeness above which a step is of another shape
_SAME, _ROOMY, _UNSITED, _SHORT = range(4)


class SlotPlan(NamedTuple):
    """A plan, and how far it has come.

    Attributes:
        progress, scripts, slots, arenas: Records.
        taken: Of each arena the places that are taken, by address: ``lower`` and ``upper`` (streams x as many as there
            can be).
        by_place: Slots of steps and of what stays by their places, in odd steps and in even ones (2 x slots).
        site: Of each request: where in the program it is made; -1: unknown.
        cycle: Of each call: 0 in initialisation, then the number of the step, never falling.
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
    """Returns whether a slot is one that is looked for."""
    if how == _SAME:
        return plan.slots[slot].size == size and plan.slots[slot].site == site
    if how == _ROOMY:
        return plan.slots[slot].size > size and plan.slots[slot].site == site
    if how == _UNSITED:
        return plan.slots[slot].size == size and (plan.slots[slot].site < 0 or site < 0)
    return plan.slots[slot].size < size and plan.slots[slot].site == site


@lean_part
def _nearest(plan: SlotPlan, script: int, how: int, reach: int, size: int, site: int, arena: int) -> int:
    """Returns the slot of a script that this cycle has not used and that is nearest to where it goes on; -1: none within reach."""
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
    """Returns the slot of what this step leaves behind for good about here; -1: nothing that is alike."""
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
    """Returns the slot of a request, and goes on from there; -1: the plan has nothing like it."""
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
            # A step of another shape goes through the plan in step, and equal sizes are chance.
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
