"""Decides whether a simulated run fits, and estimates the rest of a run that was recorded up to a failed allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdiag.allocator.calibration.continuation import EARLIER_STEP
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.errors import MemdiagError
from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, WHOLE_RUN, Outlook, Rest
from memdiag.units import GIB

if TYPE_CHECKING:
    from memdiag.allocator.scenario import Scenario
    from memdiag.allocator.subject import Subject


def outlook(subject: Subject, scenario: Scenario, *, fails: bool, with_rest: bool = True) -> Outlook:
    """Returns whether ``scenario`` fits, with the basis of that statement.

    Args:
        subject: The recording.
        scenario: The simulated settings.
        fails: Whether a recorded request fails in its replay.
        with_rest: Whether to estimate the part after the recorded failed allocation.
    """
    reach = subject.reach
    fits, basis = reach.fits(fails=fails)
    if basis != PAST_FAILURE:
        return Outlook(fits, basis)
    rest = _rest(subject, scenario) if with_rest else None
    return Outlook(fits, basis, reach.failed_at, reach.requested_bytes, reach.step, rest, rerun(subject))


def _rest(subject: Subject, scenario: Scenario) -> Rest | None:
    """Replays a scenario with the requests that probably follow; None without a basis for an estimate."""
    follows = subject.continuation
    if follows is None or POLICIES[scenario.policy].standing != "native":
        return None
    from memdiag.allocator.scenario import Beginning

    try:
        replay = subject.replayer(follows.workload, scenario, Beginning(keep_start=subject.is_recorded(scenario)))
    except MemdiagError:
        return None
    failing = is_failing(replay, follows.failed_call)
    return Rest(
        basis=follows.basis,
        peak_reserved_bytes=int(replay.reserved.max(initial=0)),
        peak_allocated_bytes=int(replay.allocated.max(initial=0)),
        fits=False if failing else True if follows.basis == EARLIER_STEP else None,
        step=follows.step,
        optimizer=follows.optimizer,
        is_optimizer_assumed=follows.is_optimizer_assumed,
        optimizer_state_bytes=follows.state_bytes,
    )


def is_failing(replay: Replay, since: int = 0) -> bool:
    """Returns whether a request fails in a replay, from call ``since`` on."""
    return bool(np.isin(replay.status[since:], (OUT_OF_MEMORY, UNDEFINED)).any())


def weakest_basis(bases: list[str]) -> str:
    """Returns the weakest of several bases: a statement about several recordings rests on it."""
    return min(bases, key=(REPLAY, PAST_FAILURE, RECORDED_PART, WHOLE_RUN).index)


def rerun(subject: Subject) -> str:
    """Returns the command that would record the whole run, on a simulated device with more memory."""
    recorded, capacity = subject.trace.recorded, subject.limits.capacity_bytes
    name = recorded.ended.phantom_device if recorded is not None else ""
    device = name or ("npu:910b-64g" if subject.trace.backend == "npu" else "cuda:h100-80g")
    size = -(-2 * (capacity or subject.device.most_held_bytes) // GIB)
    return f"memdiag record --phantom {device},total={size}GiB -- COMMAND"
