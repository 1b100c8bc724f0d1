"""Outcome of a rerun: it runs to its end, or it fails again, with the place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdiag.results.tried import LastFailure

if TYPE_CHECKING:
    from memdiag.trace.model import DeviceTrace, Trace

TO_END, FAILS_AGAIN, FAILS_THERE, FAILS_EARLIER, OTHER_ERROR = (
    "runs_to_its_end",
    "fails_again",
    "fails_at_the_same_allocation",
    "fails_earlier",
    "ends_with_another_error",
)


def failure_of(trace: Trace, device: DeviceTrace) -> LastFailure | None:
    """Returns the last failed allocation of a recording, or None."""
    from memdiag.trace import schema

    failed = np.flatnonzero(device.events.action == schema.OOM)
    if not len(failed):
        return None
    at = int(failed[-1])
    served = np.flatnonzero(device.events.action == schema.ALLOC)
    phase = schema.PHASES[int(device.events.phase[at])]
    size = max(int(device.events.size[at]) - trace.layout.pad, 0)
    before = int(np.searchsorted(served, at))
    is_last = before == len(served)
    return LastFailure(
        size, int(device.events.step[at]), phase if phase not in {"unknown", "outside"} else "", before, is_last
    )


def outcome_of(before: LastFailure | None, now: LastFailure | None, status: int) -> str:
    """Returns the outcome of a rank.

    Args:
        before: The last failed allocation of the recording, or None.
        now: The last failed allocation of the new run, or None.
        status: Exit status of the command.
    """
    if status == 0:
        return TO_END
    if now is None or not now.is_last:
        return OTHER_ERROR
    if before is None or now.num_allocations > before.num_allocations:
        return FAILS_AGAIN
    return FAILS_THERE if now.num_allocations == before.num_allocations else FAILS_EARLIER
