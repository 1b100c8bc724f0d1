"""Forward, backward and optimizer passes of a device, in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

FORWARD, BACKWARD, OPTIMIZER = (schema.PHASES.index(name) for name in ("forward", "backward", "optimizer"))


@dataclass(frozen=True)
class Passes:
    """Forward, backward and optimizer passes in order: phase, first event, event after the last."""

    phase: Array
    begin: Array
    end: Array

    @classmethod
    def of(cls, device: DeviceTrace) -> Passes:
        """Returns the passes of a device; events between two passes belong to the first."""
        phase = device.events.phase.astype(np.int64)
        in_phase = np.flatnonzero(np.isin(phase, (FORWARD, BACKWARD, OPTIMIZER)))
        if not len(in_phase):
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, nothing)
        first = in_phase[np.append(True, np.diff(phase[in_phase]) != 0)]
        last = in_phase[np.append(np.diff(phase[in_phase]) != 0, True)] + 1
        return cls(phase[first], first, last)

    def at(self, event: Array) -> Array:
        """Returns the pass of each event, or -1 before the first."""
        return np.searchsorted(self.begin, event, side="right") - 1
