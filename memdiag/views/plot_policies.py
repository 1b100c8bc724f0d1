"""Reserved memory of one run under several policies and settings, for a picture: replays of what was recorded, calibrated first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.analyzers.support.simulation import calibration_report, simulated_peak
from memdiag.analyzers.support.subject import Scenario, Subject, recorded_peak
from memdiag.errors import MemdiagError
from memdiag.render.support.text import plain
from memdiag.results.plots import PlotCurve, PoliciesPlot, SimulatedCurve
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import format_bytes, format_count
from memdiag.views.plot_frame import Ask, curve_of, frame_of, need_events, numbers, thin

_MOST_LABEL = 60
MOST_RUNS = 8  # more curves than that nobody tells apart


def policies_of(trace: Trace, device: DeviceTrace, ask: Ask) -> PoliciesPlot:
    """Returns the curves.

    Raises:
        MemdiagError: There is nothing to replay, too much is asked for, or settings are refused.
    """
    need_events(trace, device, "policies")
    if not len(device.tensors):
        raise MemdiagError(
            f"{trace.path} has no allocations to replay", "record the run from its beginning: memdiag record -- python train.py"
        )
    subject = Subject.of(trace, device)
    scenarios = ask.scenarios(subject) if ask.scenarios is not None else [subject.recorded]
    if len(scenarios) > MOST_RUNS:
        raise MemdiagError(
            f"{len(scenarios)} runs are asked for; {MOST_RUNS} can be told apart in one picture", "give fewer --policy or --conf"
        )
    runs = tuple(_run(subject, scenario, ask.columns) for scenario in scenarios)
    known = not subject.is_foreign
    frame = frame_of(trace, device, ask.columns, _notes(subject))
    limits = {scenario.capacity_bytes for scenario in scenarios}
    return PoliciesPlot(
        frame=replace(frame, capacity_bytes=limits.pop()) if len(limits) == 1 else frame,
        recorded=curve_of(device, "reserved", ask.columns) if known else None,
        allocated=curve_of(device, "allocated", ask.columns),
        recorded_peak=recorded_peak(device, "reserved") if known else None,
        runs=runs,
    )


def _run(subject: Subject, scenario: Scenario, columns: int) -> SimulatedCurve:
    replay = subject.replay(scenario, log=False)
    is_recorded = subject.is_recorded(scenario)
    peak = simulated_peak(subject, replay, "reserved", kept=is_recorded)
    own = recorded_peak(subject.device, "reserved") if subject.device.has_addresses else None
    base = own if is_recorded else subject.comparable_peak
    failed = np.flatnonzero((replay.status == OUT_OF_MEMORY) | (replay.status == UNDEFINED))
    return SimulatedCurve(
        label=_label(scenario), reserved=_curve(subject, replay, columns), peak_bytes=peak,
        saved_bytes=None if base is None else base - peak,
        failed_at=int(subject.workload.row[failed[0]]) if len(failed) else None, num_failed=len(failed),
    )  # fmt: skip


def _label(scenario: Scenario) -> str:
    conf = plain(scenario.conf, _MOST_LABEL)
    return f"{scenario.policy}, {conf}" if conf else scenario.policy


def _curve(subject: Subject, replay: Replay, columns: int) -> PlotCurve:
    """Returns what was reserved, over the events of the recording: several calls may belong to one of them."""
    row = np.maximum(subject.workload.row, 0)
    at = thin([replay.reserved], columns)
    return PlotCurve("reserved", numbers(row[at]), numbers(replay.reserved[at]))


def _notes(subject: Subject) -> tuple[str, ...]:
    short = ("nothing is told beyond where the recorded run ended",) if (subject.device.events.action == schema.OOM).any() else ()
    found = calibration_report(subject, unlimited=False)
    if found.exact is None or not found.events:
        return ("simulated; not calibrated: the file does not say where in memory tensors lay", *short)
    of = f"{format_count(found.exact)} of {format_count(found.events)} recorded addresses and segment events"
    off = "" if found.exact == found.events else f"; reserved bytes off by at most {format_bytes(found.what_if_error_bytes)}"
    return (f"simulated; calibrated: the recorded settings, simulated, give {of}{off}", *short)
