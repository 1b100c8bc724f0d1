"""The curves of a run for a picture: reserved, active and allocated over its events, with their peak."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.trace.model import DeviceTrace, Trace
from memdiag.views.plot_frame import Ask, Curve, Frame, Mark, curve_of, frame_of, need_events, peak_of


@dataclass(frozen=True)
class TimelinePlot:
    """Curves are None where the file does not know them."""

    frame: Frame
    reserved: Curve | None
    active: Curve | None
    allocated: Curve | None
    peak: Mark


def timeline_of(trace: Trace, device: DeviceTrace, ask: Ask) -> TimelinePlot:
    """Returns the curves of a device.

    Raises:
        MemdiagError: The file holds no events.
    """
    need_events(trace, device, "timeline")
    reserved, active, allocated = (curve_of(device, name, ask.columns) for name in ("reserved", "active", "allocated"))
    notes = () if reserved is not None else ("the file does not say how much was reserved",)
    return TimelinePlot(
        frame_of(trace, device, ask.columns, notes), reserved, active, allocated, peak_of(device, "reserved" if reserved else "allocated")
    )
