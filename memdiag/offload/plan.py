"""A plan to move tensors to the host or to disk."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.allocator.subject import Subject
from memdiag.offload.choose import ChosenMoves
from memdiag.offload.clock import Clock
from memdiag.offload.windows import Windows
from memdiag.trace.table import Array


@dataclass(frozen=True)
class OffloadPlan:
    """A plan for one recording.

    Attributes:
        windows: When tensors are idle.
        clock: Event times.
        chosen: The chosen moves.
        load: Live bytes without moves, after each event.
        bound: Peak of live bytes if all idle tensors were offloaded.
        subject: The recording with the moves.
        budget: Bytes of the device, or None for no limit.
        fits: Whether the replay with the moves stays within the budget.
        missing: Otherwise, the missing bytes, approximately.
    """

    windows: Windows
    clock: Clock
    chosen: ChosenMoves
    load: Array
    bound: int
    subject: Subject
    budget: int | None
    fits: bool
    missing: int
