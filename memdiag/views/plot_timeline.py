"""The curves of a run: reserved, active and allocated bytes over its events, with the moment of the report."""

from __future__ import annotations

from memdiag import vocabulary
from memdiag.results.plots import TimelinePlot
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.views.plot_frame import Ask, curve_of, frame_of, mark_of, need_events, settled


def timeline_of(trace: Trace, device: DeviceTrace, ask: Ask) -> TimelinePlot:
    """Returns the curves of a device.

    Raises:
        MemdiagError: The file has no events.
    """
    need_events(trace, device, "timeline")
    reserved, active, allocated = (curve_of(device, name, ask.columns) for name in ("reserved", "active", "allocated"))
    if (
        active is not None
        and allocated is not None
        and not (device.usage.active > device.usage.allocated)[settled(device)].any()
    ):
        active = None
    unknown = [name for name, curve in (("reserved", reserved), ("allocated", allocated)) if curve is None]
    notes = [phrase("plots.note.no-curve", curve=vocabulary.name("curve", name)) for name in unknown]
    moment = mark_of(device, ask.at, "reserved" if reserved else "allocated")
    return TimelinePlot(frame_of(trace, device, ask.columns, notes), reserved, active, allocated, moment)
