"""The moment at which ``memdiag simulate`` splits reserved memory: the default moment of reports, or that of ``--at``.

Each run has its own moment. A simulated run that gets past the recorded failed allocation is split at its peak, the
recorded run at the failure.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.allocator.as_trace import Simulated
from memdiag.analyzers.support.devices import moment_of
from memdiag.analyzers.support.moments import fragmentation_at
from memdiag.results.report import Fragmentation, ReportMoment
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import choose_moment

NO_SPLIT = Fragmentation(None, None, None, None, None, None, None, None, None)
Split = tuple[ReportMoment | None, Fragmentation]


def recorded_split(trace: Trace, device: DeviceTrace, at: str | int) -> Split:
    """Returns the moment of the recorded run for ``at``, and the split of reserved memory there."""
    if not device.has_addresses or not device.num_events:
        return None, NO_SPLIT
    return _split(trace, device, at)


def simulated_split(simulated: Simulated, at: str | int) -> Split:
    """Returns the same for a simulated run; events in ``at`` and in the result are those of the recording."""
    device, row = simulated.device, simulated.row
    if not device.num_events:
        return None, NO_SPLIT
    if isinstance(at, int):
        entries = np.flatnonzero(row <= at)
        moment, split = _split(simulated.trace, device, int(entries[-1]) if len(entries) else -1)
        event = at  # a simulated run may have no entry there
    else:
        moment, split = _split(simulated.trace, device, at)
        event = -1 if moment.at_event is None or moment.at_event < 0 else int(row[moment.at_event])
    return replace(moment, at_event=event), replace(split, at_event=event)


def _split(trace: Trace, device: DeviceTrace, at: str | int) -> tuple[ReportMoment, Fragmentation]:
    event, kind = choose_moment(device, at)
    split = fragmentation_at(device, event, trace.layout.large_segment)
    return moment_of(device, event, kind, split.lost_bytes), split
