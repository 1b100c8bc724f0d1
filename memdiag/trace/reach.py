"""How far a recording covers the run of a program.

A recording holds the requests of a program until an allocation failed, or until recording ended. If a simulated run
serves the allocation that failed, the program goes on with requests that nobody recorded, so nobody knows whether the
run fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, WHOLE_RUN
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace

_GAPS = frozenset({"MD917", "MD921", "MD922"})  # notes: a window of steps, a full ring, a gap


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a recording of one device goes.

    Attributes:
        basis: WHOLE_RUN (from an empty allocator to the program's own end), RECORDED_PART, or PAST_FAILURE (an
            allocation failed).
        failed_at: Event of the first failed allocation; -1: none failed.
        requested_bytes: What it asked for.
        step: Training step that it was in; -1: none, or unknown.
    """

    basis: str
    failed_at: int = -1
    requested_bytes: int = 0
    step: int = -1

    def fits(self, *, fails: bool) -> tuple[bool | None, str]:
        """Returns whether a simulated run fits (None: unknown) and the basis of that; ``fails``: a recorded request fails in it."""
        if fails:
            return False, REPLAY
        return (None if self.basis == PAST_FAILURE else True), self.basis


def reach_of(trace: Trace, device: DeviceTrace) -> Reach:
    """Returns how far the recording of ``device`` goes."""
    failed = np.flatnonzero(device.events.action == schema.OOM)
    if len(failed):
        at = int(failed[0])
        return Reach(PAST_FAILURE, at, int(device.events.size[at]), int(device.events.step[at]))
    ended = None if trace.recorded is None else trace.recorded.ended
    is_whole = (
        ended is not None
        and ended.reason == "exit"
        and not ended.error
        and not ended.is_windowed
        and trace.complete_from_start is True
        and not any(note.code in _GAPS for note in trace.notes)
    )
    return Reach(WHOLE_RUN if is_whole else RECORDED_PART)
