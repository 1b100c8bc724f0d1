"""The result of a simulated run: it fits, it does not, or nobody knows; and an estimate of the part that was not recorded."""

from __future__ import annotations

from dataclasses import dataclass

# On what it rests that a simulated run fits, or does not; from the weakest to the strongest.
REPLAY = "replay"  # it does not fit: a recorded request fails in the replay
PAST_FAILURE = "past_failure"  # unknown: the recorded run failed at an allocation that is served here
RECORDED_PART = "recorded_part"  # nothing fails as far as the recording goes
WHOLE_RUN = "whole_run"  # nor to the program's own end


@dataclass(frozen=True, slots=True)
class Rest:
    """An estimate of a run after the allocation that failed when it was recorded.

    Attributes:
        basis: "earlier_step" (what followed in an earlier step that asked for the same) or "optimizer_state" (the next step, with the
            state that the optimizer makes at the end of the first: a lower bound).
        peak_reserved_bytes, peak_allocated_bytes: Of the run so far and this estimate.
        fits: False: a request would fail; True: none would; None: the lower bound is within what there is.
        step: The earlier step; -1: the basis is another.
        optimizer: Class of the optimizer; "" where the basis is another.
        is_optimizer_assumed: The recording does not say which one it is.
        state_bytes: Bytes of state that were not made yet.
    """

    basis: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    fits: bool | None
    step: int = -1
    optimizer: str = ""
    is_optimizer_assumed: bool = False
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a simulated run fits.

    Attributes:
        fits: None: unknown.
        basis: "replay" (a recorded request fails), "whole_run" (the recording goes from an empty allocator to the program's end),
            "recorded_part" (only a part was recorded, in which no request fails), or "past_failure" (the recorded run failed at an
            allocation that is served here, so the rest was not recorded).
        failed_at: Event of the allocation that failed when it was recorded, with the bytes it asked for and its step
            (-1: unknown).
        rest: An estimate of what follows that; None: there is nothing to base one on.
        rerun: A command that records the whole run; "" where it is not needed.
    """

    fits: bool | None
    basis: str
    failed_at: int = -1
    failed_bytes: int = 0
    failed_step: int = -1
    rest: Rest | None = None
    rerun: str = ""
