"""Event times in seconds from the first: from the trace, scaled to a given step length, estimated, or unknown.

On a simulated device, the recorded times are those of the host alone. With a given step length they are estimated:
backward takes twice as long as forward, the optimizer little, and within a pass, time is proportional to the allocated
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import ALLOC, PHASES
from memdiag.trace.table import Array

_SHARES = {"forward": 1.0, "backward": 2.0, "optimizer": 0.1}  # fractions of a step


@dataclass(frozen=True)
class Clock:
    """Times of events.

    Attributes:
        seconds: Time before each event, and at the end (one more than events); not decreasing.
        step_seconds: Mean length of a step, or None without steps or times.
        num_steps: Number of complete steps of the trace, at least 1.
        is_known: Whether times come from the trace or were given; otherwise all are 0, and the cost of copies is
            unknown.
        is_estimated: Whether they are estimated as described above.
    """

    seconds: Array
    step_seconds: float | None
    num_steps: int
    is_known: bool
    is_estimated: bool = False

    @classmethod
    def of(cls, device: DeviceTrace, step_seconds: float | None = None, *, is_real: bool = True) -> Clock:
        """Returns the times of a device's events.

        Args:
            device: The device.
            step_seconds: Length of a step, if the trace's times are not to be used.
            is_real: Whether the trace's times are those of a device that did the work.
        """
        n = device.num_events
        steps = device.events.step
        num_steps = max(len(np.unique(steps[steps >= 0])), 1)
        inside = np.flatnonzero(steps >= 0)
        first, last = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, n)
        if step_seconds is not None and not (is_real and (device.events.time_us >= 0).any()):
            return cls(_estimated(device, step_seconds), step_seconds, num_steps, is_known=True, is_estimated=True)
        time = device.events.time_us
        known = bool(n) and bool((time >= 0).any())
        if known:
            seconds = np.maximum.accumulate(np.where(time >= 0, time, -1)).astype(np.float64)
            seconds = (
                np.append(np.maximum(seconds - seconds[time >= 0][0], 0), seconds[-1] - seconds[time >= 0][0]) / 1e6
            )
        else:
            seconds = np.arange(n + 1, dtype=np.float64)
        length = float(seconds[last] - seconds[first]) / num_steps
        if step_seconds is not None and length > 0:
            seconds, length, known = _stretched(seconds, steps, step_seconds, length), step_seconds, True
        if not known:
            return cls(np.zeros(n + 1), None, num_steps, is_known=False)
        return cls(seconds, length if length > 0 else None, num_steps, is_known=True)


def _estimated(device: DeviceTrace, step_seconds: float) -> Array:
    """Returns times by phase fractions and, within phases, by allocated bytes; events outside steps take no time."""
    events = device.events
    weight = np.where(events.action == ALLOC, np.maximum(events.size, 1), 0).astype(np.float64) + 1.0
    share = np.array([_SHARES.get(name, 0.0) for name in PHASES])
    step, phase = events.step.astype(np.int64), events.phase.astype(np.int64)
    key = (step + 1) * len(PHASES) + phase
    whole = np.bincount(key, weights=weight, minlength=(int(step.max(initial=-1)) + 2) * len(PHASES))
    present = (whole.reshape(-1, len(PHASES)) > 0) * share
    part = present / np.maximum(present.sum(axis=1, keepdims=True), 1e-12) * step_seconds
    part[0] = 0.0
    passed = weight / whole[key] * part.reshape(-1)[key]
    estimated: Array = np.append(0.0, np.cumsum(passed))
    return estimated


def _stretched(seconds: Array, steps: Array, wanted: float, mean: float) -> Array:
    """Returns times in which each step takes ``wanted`` seconds.

    The first step is often longer. Events outside steps are scaled with the mean.
    """
    passed = np.diff(seconds)
    each = np.maximum(steps, -1).astype(np.int64) + 1
    length = np.bincount(each, weights=passed)
    factor = np.where(length > 0, wanted / np.where(length > 0, length, 1.0), 0.0)
    factor[0] = wanted / mean
    stretched: Array = np.append(0.0, np.cumsum(passed * factor[each]))
    return stretched
