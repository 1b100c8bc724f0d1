"""The verdict of ``memdiag try`` on the repeated run: it goes to its end, or it fails again, with the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memdiag import vocabulary
from memdiag.text import Phrase, phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.trace.model import DeviceTrace, Trace

TO_END, FAILS_AGAIN, FAILS_THERE, FAILS_EARLIER, OTHER_ERROR = (
    "runs_to_its_end", "fails_again", "fails_at_the_same_allocation", "fails_earlier", "ends_with_another_error",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """The last failed allocation of the new run of one rank.

    Attributes:
        requested_bytes: What it asked for.
        step, phase: Where in the training; -1 and "": unknown.
        num_allocations: Served before it.
        is_last: Nothing was allocated after it.
    """

    requested_bytes: int
    step: int
    phase: str
    num_allocations: int
    is_last: bool


def failure_of(trace: Trace, device: DeviceTrace) -> Failure | None:
    """Returns the last failed allocation of a recording; None: none failed."""
    from memdiag.trace import schema

    failed = np.flatnonzero(device.events.action == schema.OOM)
    if not len(failed):
        return None
    at = int(failed[-1])
    served = np.flatnonzero(device.events.action == schema.ALLOC)
    phase = schema.PHASES[int(device.events.phase[at])]
    size = max(int(device.events.size[at]) - trace.layout.pad, 0)
    before = int(np.searchsorted(served, at))
    return Failure(size, int(device.events.step[at]), phase if phase not in {"unknown", "outside"} else "", before, before == len(served))


def outcome_of(before: Failure | None, now: Failure | None, status: int) -> str:
    """Returns the outcome of a rank.

    Args:
        before: The last failed allocation when it was recorded; None: none failed.
        now: That of the new run.
        status: Exit status of the command.
    """
    if status == 0:
        return TO_END
    if now is None or not now.is_last:
        return OTHER_ERROR
    if before is None or now.num_allocations > before.num_allocations:
        return FAILS_AGAIN
    return FAILS_THERE if now.num_allocations == before.num_allocations else FAILS_EARLIER


def words(before: Failure | None, failure: Failure | None, peak_bytes: int, status: int) -> Phrase:
    """Returns the verdict on a rank as a sentence without its full stop.

    Args:
        before: The last failed allocation when it was recorded; None: none failed.
        failure: That of the new run.
        peak_bytes: Reserved peak of the whole new run.
        status: Exit status of the command.
    """
    outcome, peak = outcome_of(before, failure, status), format_bytes(peak_bytes)
    if outcome == TO_END:
        return phrase("try.outcome.end.handled" if failure is not None else "try.outcome.end", peak=peak)
    if outcome == OTHER_ERROR or failure is None:
        return phrase("try.outcome.other", status=str(status), peak=peak)
    facts: dict[str, object] = {"place": _place(failure), "bytes": format_bytes(failure.requested_bytes), "peak": peak}
    if outcome == FAILS_EARLIER:
        return phrase("try.outcome.earlier", **facts)
    if outcome == FAILS_THERE:
        return phrase("try.outcome.same", **facts)
    if before is None:
        return phrase("try.outcome.new", **facts)
    return phrase("try.outcome.later", count=failure.num_allocations - before.num_allocations, **facts)


def _place(failure: Failure) -> Phrase | str:
    """Returns where in the training an allocation failed; "": unknown."""
    phase = vocabulary.name("phase", failure.phase) if failure.phase else ""
    if failure.step >= 0:
        step = str(failure.step)
        return phrase("try.place.step.phase", step=step, phase=phase) if phase else phrase("try.place.step", step=step)
    return phrase("try.place.phase", phase=phase) if phase else ""
