"""Reserved memory of one run under several policies and settings, from given simulated runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.allocator.simulated_run import SimulatedRun, SimulatedRuns
from memdiag.allocator.subject import recorded_peak
from memdiag.errors import MemdiagError
from memdiag.results.plots import PlotCurve, PoliciesPlot, SimulatedCurve
from memdiag.text import phrase, plain
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import format_bytes
from memdiag.views.plot_frame import Ask, curve_of, frame_of, need_events, numbers, thin

_MOST_LABEL = 60
MOST_RUNS = 8  # more curves cannot be distinguished


def policies_of(trace: Trace, device: DeviceTrace, ask: Ask) -> PoliciesPlot:
    """Returns the curves.

    Raises:
        MemdiagError: There is nothing to replay.
        ValueError: ``ask`` has no simulated runs.
    """
    need_events(trace, device, "policies")
    simulated = ask.simulated
    if simulated is None:
        raise ValueError("this picture needs Ask.simulated: memdiag.runs.simulated_runs.simulate_runs")
    runs = tuple(
        _run(run, saved, ask.columns) for run, saved in zip(simulated.runs, simulated.saved_bytes, strict=True)
    )
    known = not simulated.is_foreign
    frame = frame_of(trace, device, ask.columns, _notes(device, simulated))
    limits = {run.capacity_bytes for run in simulated.runs}
    return PoliciesPlot(
        frame=replace(frame, capacity_bytes=limits.pop()) if len(limits) == 1 else frame,
        recorded=curve_of(device, "reserved", ask.columns) if known else None,
        allocated=curve_of(device, "allocated", ask.columns),
        recorded_peak=recorded_peak(device, "reserved") if known else None,
        runs=runs,
    )


def need_few(num_runs: int) -> None:
    """Checks that the runs can be distinguished.

    Raises:
        MemdiagError: There are too many.
    """
    if num_runs > MOST_RUNS:
        raise MemdiagError(phrase("plots.too-many", count=num_runs, most=MOST_RUNS), phrase("plots.too-many.hint"))


def _run(run: SimulatedRun, saved: int | None, columns: int) -> SimulatedCurve:
    return SimulatedCurve(
        label=_label(run),
        reserved=_curve(run, columns),
        peak_bytes=run.peak_bytes,
        saved_bytes=saved,
        failed_at=int(run.event[run.failed[0]]) if len(run.failed) else None,
        num_failed=len(run.failed),
    )


def _label(run: SimulatedRun) -> str:
    conf = plain(run.conf, _MOST_LABEL)
    name = f"{run.policy}, {conf}" if conf else run.policy
    return phrase("plots.uncalibrated", name=name) if run.standing == "uncalibrated" else name


def _curve(run: SimulatedRun, columns: int) -> PlotCurve:
    """Returns the reserved bytes over the events of the recording; several calls may belong to one event."""
    row = np.maximum(run.event, 0)
    at = thin([run.reserved], columns)
    return PlotCurve("reserved", numbers(row[at]), numbers(run.reserved[at]))


def _notes(device: DeviceTrace, simulated: SimulatedRuns) -> tuple[str, ...]:
    short = (phrase("plots.note.ended"),) if (device.events.action == schema.OOM).any() else ()
    found = simulated.calibration
    if found.num_exact is None or not found.num_events:
        return (phrase("plots.note.no-calibration"), *short)
    error = (
        ""
        if found.num_exact == found.num_events
        else phrase("plots.note.error", bytes=format_bytes(found.calibration_error_bytes))
    )
    return (
        phrase("plots.note.calibration", count=found.num_exact, of=found.num_events, error=error),
        *short,
    )
