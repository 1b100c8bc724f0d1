"""The result of a placement plan: how much of it held in steps that it had not seen, and what was allocated beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """What became of some requests of the default pool; bytes are rounded up to 512.

    Attributes:
        num, num_bytes: All of them.
        num_planned, planned_bytes: Those that got a place of the plan, made for as much or for more.
        num_in_gaps, gap_bytes: Those that got none, but room that the plan leaves just then.
        num_unknown, num_too_large, num_taken, num_no_room: The others, which the caching allocator served: nothing like it is near in the
            plan, it asks for more than was planned for, its place was taken, there was no memory for the plan.
    """

    num: int
    num_bytes: int
    num_planned: int
    planned_bytes: int
    num_in_gaps: int
    gap_bytes: int
    num_unknown: int
    num_too_large: int
    num_taken: int
    num_no_room: int


@dataclass(frozen=True, slots=True)
class PlanTold:
    """How it went.

    Attributes:
        basis: What the steps rest on.
        num_steps: How many there are.
        planned_step: Number of the step that was planned; None: none is known, and all of the recording was planned as
            it was.
        plan_bytes, load_bytes: Height of the plan, and the most bytes that it has live at one moment: no plan is below.
        bound_bytes: The most bytes that are live at one moment of the whole run: no allocator is below.
        next_step: Number of the next recorded step (else the one before), which the plan has not seen; None: there is
            none.
        next: What became of its requests.
        unseen: The same for all steps that the plan has not seen.
        arena_bytes, fallback_bytes: Most bytes held for the plan, and beside it by the caching allocator.
    """

    basis: str
    num_steps: int
    planned_step: int | None
    plan_bytes: int
    load_bytes: int
    bound_bytes: int
    next_step: int | None
    next: Served | None
    unseen: Served | None
    arena_bytes: int
    fallback_bytes: int
