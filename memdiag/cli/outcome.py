"""The verdict of ``memdiag try`` on the repeated run: it goes to its end, or it fails again, with the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memdiag.units import format_bytes, plural

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


def words(before: Failure | None, failure: Failure | None, peak_bytes: int, status: int) -> str:
    """Returns the verdict on a rank as a sentence without its full stop.

    Args:
        before: The last failed allocation when it was recorded; None: none failed.
        failure: That of the new run.
        peak_bytes: Reserved peak of the whole new run.
        status: Exit status of the command.
    """
    outcome = outcome_of(before, failure, status)
    peak = f"peak {format_bytes(peak_bytes)} reserved"
    if outcome == TO_END:
        caught = ", and handles an allocation that fails" if failure is not None else ""
        return f"the run goes to its end{caught}; {peak}"
    if outcome == OTHER_ERROR or failure is None:
        return f"the run ends with status {status}, and not for want of device memory; {peak}"
    place = f" in step {failure.step}" if failure.step >= 0 else ""
    place += f" ({failure.phase})" if failure.phase else ""
    what = f"{format_bytes(failure.requested_bytes)} cannot be allocated"
    if outcome == FAILS_EARLIER:
        return f"the run fails{place}, before the place at which it failed when it was recorded: {what}; {peak}"
    if outcome == FAILS_THERE:
        return f"the run fails again{place}, at the same allocation: {what}; {peak}"
    if before is None:
        return f"the run fails{place}, which it did not when it was recorded: {what}; {peak}"
    more = failure.num_allocations - before.num_allocations
    return f"the run fails again{place}, after {plural(more, 'more allocation')}: {what}; {peak}"
