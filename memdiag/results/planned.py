"""Result of a placement plan: how well it fitted unseen steps, and the memory allocated outside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """Outcome of requests of the default pool; bytes are rounded up to 512.

    Attributes:
        num, num_bytes: All requests.
        num_planned, planned_bytes: Requests that got a planned slot of at least their size.
        num_in_gaps, gap_bytes: Requests without a slot that got space that the plan leaves free at that moment.
        num_unknown, num_too_large, num_taken, num_no_room: The other requests, which the caching allocator served: the
            plan has no similar request nearby, the request exceeds its slot, its slot was in use, or there was no
            memory for the plan.
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
    """Outcome of a placement plan.

    Attributes:
        basis: How the steps were identified.
        num_steps: Number of steps.
        planned_step: Number of the planned step, or None if no steps are known and the whole recording was planned.
        plan_bytes, load_bytes: Height of the plan, and its peak of live bytes, the lower bound of any plan.
        bound_bytes: Peak of live bytes of the whole run, the lower bound of any allocator.
        next_step: Number of the next recorded step (else the previous one), which the plan has not seen; None if there
            is none.
        next: Outcome of its requests.
        unseen: The same for all steps that the plan has not seen.
        arena_bytes, fallback_bytes: Peak bytes reserved for the plan, and by the caching allocator for all other
            requests.
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
