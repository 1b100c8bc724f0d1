"""A plan to move tensors to the host or to disk."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.allocator.subject import Subject
from memdiag.offload.choose import Chosen
from memdiag.offload.clock import Clock
from memdiag.offload.windows import Windows
from memdiag.trace.table import Array


@dataclass(frozen=True)
class OffloadPlan:
    """A plan for one recording.

    Attributes:
        windows: When tensors are not needed.
        clock: When events happen.
        chosen: What moves.
        load: Live bytes with nothing moved, after each event.
        bound: Live bytes at most if all that is idle were away.
        subject: The recording with the moves in it.
        budget: Bytes of the device; None: no limit.
        fits: The replay of what is left needs no more.
        missing: Bytes that it lacks otherwise, roughly.
    """

    windows: Windows
    clock: Clock
    chosen: Chosen
    load: Array
    bound: int
    subject: Subject
    budget: int | None
    fits: bool
    missing: int
