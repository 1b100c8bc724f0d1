"""How much of a program's run a recording covers.

A recording contains the requests of a program until an allocation failed, or until recording ended. If a simulated run
serves the failed allocation, the program continues with requests that were not recorded, so it is unknown whether the
run fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, REPLAY, WHOLE_RUN
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace

_GAPS = frozenset({"MD917", "MD921", "MD922"})  # notes about partial recordings: a window of steps, a full ring, a gap


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of the run the recording of one device covers.

    Attributes:
        basis: WHOLE_RUN (from an empty allocator to the program's own end), RECORDED_PART, or PAST_FAILURE (an
            allocation failed).
        failed_at: Event of the first failed allocation, or -1 if none failed.
        requested_bytes: Its requested bytes.
        step: Its training step, or -1 if unknown.
    """

    basis: str
    failed_at: int = -1
    requested_bytes: int = 0
    step: int = -1

    def fits(self, *, fails: bool) -> tuple[bool | None, str]:
        """Returns whether a simulated run fits (None if unknown), and the basis of that answer.

        Args:
            fails: Whether a recorded request fails in the simulated run.
        """
        if fails:
            return False, REPLAY
        return (None if self.basis == PAST_FAILURE else True), self.basis


def reach_of(trace: Trace, device: DeviceTrace) -> Reach:
    """Returns how much of the run the recording of ``device`` covers."""
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
