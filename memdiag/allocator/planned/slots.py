"""Slots: requests that have places in a plan, and how a request of a run finds its own. Compiled.

Three scripts stand one after the other: what initialisation asks for, what a step does, and what steps leave behind for good. In each there
is a pointer to where it goes on. A request looks around it for a slot of its size that was made for the same line of the program; one that
differs then costs no other its place. A step of another shape (a shorter batch) asks for other sizes in the same order: it is followed slot
by slot, and places that were made for more serve less.
"""

from __future__ import annotations

from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# Columns of a slot: bytes of its place, where it was asked for, arena, places (-1: it has no second one), the cycle that has used it;
# the cycle that it was recorded in, as which of its requests.
SLOT_SIZE, SLOT_SITE, SLOT_ARENA, SLOT_OFF, SLOT_SECOND, SLOT_USED, SLOT_CYCLE, SLOT_ORDINAL, NUM_SLOT = range(9)
# Scripts: rows of slots in order. What initialisation asks for, what a step does, and what steps leave behind for good.
INIT, STEP, STAY, NUM_SCRIPTS = range(4)
# State: where each script begins, goes on, ends; the cycle (0: initialisation), how many requests
# it has made, how many of the latest asked for less than planned (of 1024); each request has a range of its own; the pool of the arenas.
BEGIN, POINTER, END = 0, NUM_SCRIPTS, 2 * NUM_SCRIPTS
CYCLE, ORDINAL, STRANGENESS, IS_ALONE, OWN_POOL, NUM_STATE = range(3 * NUM_SCRIPTS, 3 * NUM_SCRIPTS + 6)
ROVES = -2  # in place of a place: it takes any in the room for what roves

AHEAD = 512  # slots that a step may be out of step with the plan
NEAR = 8  # slots within which a request from the same line is the same one, whatever it asks for
_STRANGE = 128  # STRANGENESS above which a step is of another shape
_SAME, _ROOMY, _UNSITED, _SHORT = range(4)


@lean_part
def _fits(slots: Array, s: int, how: int, size: int, site: int) -> bool:
    """Whether slot ``s`` is one that is looked for."""
    if how == _SAME:
        return slots[SLOT_SIZE, s] == size and slots[SLOT_SITE, s] == site
    if how == _ROOMY:
        return slots[SLOT_SIZE, s] > size and slots[SLOT_SITE, s] == site
    if how == _UNSITED:
        return slots[SLOT_SIZE, s] == size and (slots[SLOT_SITE, s] < 0 or site < 0)
    return slots[SLOT_SIZE, s] < size and slots[SLOT_SITE, s] == site


@lean_part
def _nearest(slots: Array, k: Array, script: int, how: int, reach: int, size: int, site: int, arena: int) -> int:
    """Returns the slot of a script that this cycle has not used and that is nearest to where it goes on; -1: none within reach."""
    begin, end, pointer = k[BEGIN + script], k[END + script], k[POINTER + script]
    for far in range(reach):
        s = pointer + far
        if s < end and slots[SLOT_USED, s] != k[CYCLE] and slots[SLOT_ARENA, s] == arena and _fits(slots, s, how, size, site):
            return s
        s = pointer - far - 1
        if s >= begin and slots[SLOT_USED, s] != k[CYCLE] and slots[SLOT_ARENA, s] == arena and _fits(slots, s, how, size, site):
            return s
        if pointer + far >= end and s < begin:
            return -1
    return -1


@lean_part
def _stays(slots: Array, k: Array, size: int, site: int, arena: int) -> int:
    """Returns the slot of what this step leaves behind for good about here; -1: nothing that is alike."""
    for s in range(k[POINTER + STAY], k[END + STAY]):
        late = slots[SLOT_ORDINAL, s] - k[ORDINAL]
        if slots[SLOT_CYCLE, s] > k[CYCLE] or (slots[SLOT_CYCLE, s] == k[CYCLE] and late > NEAR):
            return -1
        is_due = slots[SLOT_CYCLE, s] == k[CYCLE] and late >= -NEAR and slots[SLOT_USED, s] < 0
        if is_due and slots[SLOT_ARENA, s] == arena and _fits(slots, s, _SAME, size, site):
            return s
    return -1


@lean_part
def slot_of(slots: Array, k: Array, size: int, site: int, arena: int) -> int:
    """Returns the slot of a request, and goes on from there; -1: the plan has nothing like it."""
    script, s = INIT, -1
    if k[CYCLE] > 0:
        script, at = STEP, k[POINTER + STEP]
        s = _stays(slots, k, size, site, arena)
        if s >= 0:
            script = STAY
        elif k[STRANGENESS] > _STRANGE and at < k[END + STEP] and slots[SLOT_ARENA, at] == arena and slots[SLOT_USED, at] != k[CYCLE]:
            # A step of another shape goes through the plan in step, and equal sizes are chance.
            s = at if slots[SLOT_SITE, at] == site and slots[SLOT_SIZE, at] >= size else -1
    if s < 0:
        s = _nearest(slots, k, script, _SAME, AHEAD, size, site, arena)
    if s < 0:
        s = _nearest(slots, k, script, _UNSITED, AHEAD, size, site, arena)
    if s < 0:
        s = _nearest(slots, k, script, _ROOMY, NEAR, size, site, arena)
    if s < 0:
        s = _nearest(slots, k, script, _SHORT, NEAR, size, site, arena)
    if s >= 0:
        slots[SLOT_USED, s] = k[CYCLE]
        k[POINTER + script] = s + 1
        if script == STEP:
            k[STRANGENESS] += ((0 if slots[SLOT_SIZE, s] == size else 1024) - k[STRANGENESS]) // 8
    return s
