"""Curves of the same run under other settings, to lay over each other: the recorded ones, every remedy of the report, the bound.

Only where a replay of the recorded settings reproduces the recording: a curve is a prediction as much as a number is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memdiag.allocator.result import Replay
from memdiag.analyzers.support.pools_judged import is_calibrated, live_bytes, most_live
from memdiag.analyzers.support.simulation import simulated_peak
from memdiag.analyzers.support.subject import Scenario, Subject
from memdiag.errors import MemdiagError
from memdiag.results.report import Report
from memdiag.trace.model import Trace
from memdiag.views.columns import pack
from memdiag.views.timeline import of_curve

MOST_POINTS = 4000
_MOST_EVENTS = 3_000_000  # of a trace: a replay takes about a second for each ten million, and there are several
_BACKENDS = ("cuda", "npu")
_EXPANDABLE = "expandable_segments:True"


def simulated_curves(trace: Trace, report: Report) -> tuple[dict[str, Any], ...]:
    """Returns the curves for every device of the report of which replays can tell: see ``curve``."""
    if trace.backend not in _BACKENDS:
        return ()
    found = []
    for device in trace.devices:
        shown = any(device.device == each.device for each in report.devices)
        if shown and device.has_addresses and 0 < device.num_events <= _MOST_EVENTS and len(device.tensors):
            subject = Subject.of(trace, device)
            if is_calibrated(subject):
                found += [each for label, scenario in _scenarios(subject, report) if (each := _replayed(subject, scenario, label))]
                found.append(_bound(subject))
    return tuple(found)


def curve(subject: Subject, scenario: Scenario, replay: Replay, label: str) -> dict[str, Any]:
    """Returns one curve for a page: label, policy, conf, device, peak_reserved, num_ooms, is_recorded, and the columns in ``event``."""
    at = of_curve(replay.reserved, replay.allocated, MOST_POINTS)
    is_recorded = subject.is_recorded(scenario)
    return {
        "label": label, "policy": scenario.policy, "conf": scenario.conf, "device": subject.device.device,
        "peak_reserved": simulated_peak(subject, replay, "reserved", kept=is_recorded), "num_ooms": int(replay.ooms.max(initial=0)),
        "is_recorded": is_recorded,
        "event": pack({"event": subject.workload.row[at], "reserved": replay.reserved[at], "allocated": replay.allocated[at]}),
    }  # fmt: skip


def _scenarios(subject: Subject, report: Report) -> Iterator[tuple[str, Scenario]]:
    """Yields what to replay, with a label: no line twice."""
    own = subject.recorded
    yield "as recorded", own
    lines = [each.conf for each in report.what_if if each.device == subject.device.device and each.is_shown]
    if not any(_EXPANDABLE in line for line in [own.conf, *lines]):
        lines.append(f"{own.conf},{_EXPANDABLE}".strip(","))
    for line in dict.fromkeys(lines):
        yield line or "no settings at all", replace(own, conf=line)


def _bound(subject: Subject) -> dict[str, Any]:
    """Returns the bytes that are live, as a curve: a replay of the policy ``bound`` gives the same, after compiling for 20 seconds."""
    live = live_bytes(subject.workload)[1:]
    at = of_curve(live, live, MOST_POINTS)
    return {
        "label": "bound: the least that any allocator needs", "policy": "bound", "conf": "", "device": subject.device.device,
        "peak_reserved": most_live(subject.workload), "num_ooms": 0, "is_recorded": False,
        "event": pack({"event": subject.workload.row[at], "reserved": live[at], "allocated": live[at]}),
    }  # fmt: skip


def _replayed(subject: Subject, scenario: Scenario, label: str) -> dict[str, Any] | None:
    """Returns a curve; None: the version that was recorded refuses these settings."""
    try:
        return curve(subject, scenario, subject.replay(scenario, log=False), label)
    except MemdiagError:
        return None
