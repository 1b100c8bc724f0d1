"""Simulated runs of one recording under several settings, ready for overlay: views take these and simulate nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from memdiag.allocator.policies import POLICIES
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.simulated_run import SimulatedRun, SimulatedRuns
from memdiag.allocator.subject import Subject, recorded_peak
from memdiag.analyzers.support.pools_judged import is_calibrated, live_bytes, most_live
from memdiag.errors import MemdiagError
from memdiag.results.report import Report
from memdiag.runs.scenarios import SimulationRequest
from memdiag.runs.simulation import calibration_report, simulated_peak
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace

BOUND = "bound"
_MOST_EVENTS = 3_000_000  # of a trace: a replay takes about a second per ten million, and there are several
_BACKENDS = ("cuda", "npu")
_EXPANDABLE = "expandable_segments:True"


def simulate_runs(subject: Subject, scenarios: Sequence[Scenario]) -> SimulatedRuns:
    """Replays a recording under several settings.

    Args:
        subject: The recording.
        scenarios: The settings.

    Raises:
        MemdiagError: Settings are refused.
    """
    runs = tuple(simulated_run(subject, each, subject.replay(each, log=False), each.policy) for each in scenarios)
    own = recorded_peak(subject.device, "reserved") if subject.device.has_addresses else None
    bases = [own if run.is_recorded else subject.comparable_peak for run in runs]
    saved = tuple(None if base is None else base - run.peak_bytes for base, run in zip(bases, runs, strict=True))
    return SimulatedRuns(runs, saved, subject.is_foreign, calibration_report(subject, unlimited=False))


def simulate_request(
    trace: Trace, device: DeviceTrace, request: SimulationRequest, check_number: Callable[[int], None] = lambda _: None
) -> SimulatedRuns:
    """Replays a recording under the settings of a request.

    Args:
        trace, device: The recording.
        request: The settings.
        check_number: Raises an error if the number of runs is too large.

    Raises:
        MemdiagError: The device has no allocations, or settings are refused.
    """
    subject = subject_of(trace, device)
    request.check(trace, device)
    scenarios = request.scenarios(subject)
    check_number(len(scenarios))
    return simulate_runs(subject, scenarios)


def subject_of(trace: Trace, device: DeviceTrace) -> Subject:
    """Returns the recording of a device, ready to be simulated.

    Raises:
        MemdiagError: It has no allocations.
    """
    if not len(device.tensors):
        raise MemdiagError(
            phrase("errors.no-allocations", path=str(trace.path)),
            phrase("errors.from-beginning"),
        )
    return Subject.of(trace, device)


def simulated_run(subject: Subject, scenario: Scenario, made: Replay, label: str) -> SimulatedRun:
    """Returns the curves of a replay.

    Args:
        subject: The recording.
        scenario: The settings.
        made: The replay with these settings.
        label: Label of the run in a picture.
    """
    is_recorded = subject.is_recorded(scenario)
    standing = POLICIES[scenario.policy].standing
    return SimulatedRun(
        label=f"{label} ({phrase('simulate.model.mark')})" if standing == "uncalibrated" else label,
        policy=scenario.policy,
        conf=scenario.conf,
        capacity_bytes=scenario.capacity_bytes,
        device=subject.device.device,
        is_recorded=is_recorded,
        peak_bytes=simulated_peak(subject, made, "reserved", kept=is_recorded),
        num_ooms=int(made.ooms.max(initial=0)),
        event=subject.workload.row,
        reserved=made.reserved,
        allocated=made.allocated,
        failed=np.flatnonzero((made.status == OUT_OF_MEMORY) | (made.status == UNDEFINED)),
        standing=standing,
    )


def runs_of_report(trace: Trace, report: Report) -> list[SimulatedRun]:
    """Returns the recorded run, every remedy of a report, and the lower bound, for each device of it.

    They are omitted unless a replay of the recorded settings reproduces the recording: a curve is a prediction like a
    number.

    Args:
        trace: The recording.
        report: Its diagnosis.
    """
    if trace.backend not in _BACKENDS:
        return []
    found = []
    for device in trace.devices:
        shown = any(device.device == each.device for each in report.devices)
        if shown and device.has_addresses and 0 < device.num_events <= _MOST_EVENTS and len(device.tensors):
            subject = Subject.of(trace, device)
            if is_calibrated(subject):
                found += [
                    each
                    for label, scenario in _scenarios(subject, report)
                    if (each := _replayed(subject, scenario, label))
                ]
                found.append(_bound(subject))
    return found


def _scenarios(subject: Subject, report: Report) -> Iterator[tuple[str, Scenario]]:
    """Yields the distinct settings to replay, with a label."""
    own = subject.recorded
    yield "as recorded", own
    lines = [each.conf for each in report.what_if if each.device == subject.device.device and each.is_shown]
    if not subject.trace.stacks.on_windows and not any(_EXPANDABLE in line for line in [own.conf, *lines]):
        lines.append(f"{own.conf},{_EXPANDABLE}".strip(","))
    for line in dict.fromkeys(lines):
        yield line or "default settings", replace(own, conf=line)


def _bound(subject: Subject) -> SimulatedRun:
    """Returns the live bytes as a run: the policy ``bound`` gives the same, after compiling for 20 seconds."""
    live = live_bytes(subject.workload)[1:]
    return SimulatedRun(
        label="bound: lower bound of any allocator",
        policy=BOUND,
        conf="",
        capacity_bytes=None,
        device=subject.device.device,
        is_recorded=False,
        peak_bytes=most_live(subject.workload),
        num_ooms=0,
        event=subject.workload.row,
        reserved=live,
        allocated=live,
        failed=np.zeros(0, np.int64),
        standing="bound",
    )


def _replayed(subject: Subject, scenario: Scenario, label: str) -> SimulatedRun | None:
    """Returns a run, or None if the recorded version refuses these settings."""
    try:
        return simulated_run(subject, scenario, subject.replay(scenario, log=False), label)
    except MemdiagError:
        return None
