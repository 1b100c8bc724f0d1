"""Estimates whether a simulated run fits, including the part that was not recorded."""

from __future__ import annotations

from dataclasses import dataclass

# Bases of the answer whether a simulated run fits, from the weakest to the strongest.
REPLAY = "replay"  # it does not fit: a recorded request fails in the replay
PAST_FAILURE = "past_failure"  # unknown: the recorded run failed at an allocation that succeeds here
RECORDED_PART = "recorded_part"  # no request fails in the recorded part
WHOLE_RUN = "whole_run"  # nor to the program's own end


@dataclass(frozen=True, slots=True)
class Rest:
    """An estimate of the run after the recorded failed allocation.

    Attributes:
        basis: "earlier_step" (the requests that followed in an earlier step with the same requests) or
            "optimizer_state" (the next step, with the state that the optimizer allocates at the end of the first step:
            a lower bound).
        peak_reserved_bytes: Reserved peak of the recorded run together with this estimate.
        peak_allocated_bytes: Allocated peak of the recorded run together with this estimate.
        fits: False if a request would fail, True if none would, None if only the lower bound is within the available
            memory.
        step: The earlier step for the basis "earlier_step", otherwise -1.
        optimizer: Class of the optimizer for the basis "optimizer_state", otherwise "".
        is_optimizer_assumed: Whether the optimizer is assumed because the recording does not name it.
        optimizer_state_bytes: Bytes of optimizer state that were not allocated yet.
    """

    basis: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    fits: bool | None
    step: int = -1
    optimizer: str = ""
    is_optimizer_assumed: bool = False
    optimizer_state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a simulated run fits.

    Attributes:
        fits: None if unknown.
        basis: "replay" (a recorded request fails), "whole_run" (the recording goes from an empty allocator to the
            program's end), "recorded_part" (only a part was recorded, in which no request fails), or "past_failure"
            (the recorded run failed at an allocation that succeeds here, so the rest was not recorded).
        failed_at_event: Event of the recorded failed allocation.
        failed_request_bytes: Size of the request that failed.
        failed_step: Training step of the failed allocation (-1: unknown).
        estimate: An estimate of the run after the failure, or None if there is no basis for one.
        rerun_command: A command that records the whole run, or "" if it is not needed.
    """

    fits: bool | None
    basis: str
    failed_at_event: int = -1
    failed_request_bytes: int = 0
    failed_step: int = -1
    estimate: Rest | None = None
    rerun_command: str = ""
