"""Predictions: replays of a recording with other settings or on other devices.

Calibration comes first: memdiag replays the recorded settings and compares the result with the recording. Predicted
savings carry the calibration error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.allocator.as_trace import Simulated
from memdiag.allocator.calibration.from_trace import PLAIN_EVENTS
from memdiag.allocator.calibration.recorded_settings import DEFAULT_VERSION, recorded_settings
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject, recorded_peak
from memdiag.allocator.tuning.smallest import smallest_capacity
from memdiag.allocator.workload import ALLOC, EXTERNAL, Workload
from memdiag.analyzers.churn import count_retries
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.cards import card_of
from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.fit import would_fit
from memdiag.analyzers.support.names import name_of
from memdiag.results.prediction import (
    CalibrationReport,
    FirstDivergence,
    FirstOom,
    Prediction,
    PredictionReport,
    RecordedRun,
)
from memdiag.runs.outlook import outlook
from memdiag.runs.split_moments import recorded_split, simulated_split
from memdiag.text import Phrase, phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import format_bytes


def predict(
    subject: Subject, scenario: Scenario, *, with_min_capacity: bool = False, with_rest: bool = True
) -> tuple[Prediction, Replay, Simulated]:
    """Returns the prediction for ``scenario``, its replay, and the replay as a trace.

    Args:
        with_rest: Whether to estimate the unrecorded rest.
    """
    replay = subject.replay(scenario, log=True)
    simulated = subject.as_trace(scenario, replay)
    kept = subject.is_recorded(scenario)
    peaks = {name: simulated_peak(subject, replay, name, kept=kept) for name in ("reserved", "allocated", "requested")}
    failed = np.flatnonzero(replay.status == OUT_OF_MEMORY)
    undefined = int(np.count_nonzero(replay.status == UNDEFINED))
    base = subject.comparable_peak
    if kept:
        base = recorded_peak(subject.device, "reserved") if subject.device.has_addresses else None
    freed = np.diff(replay.device_frees, prepend=0)
    obtained = int(replay.device_allocs[-1]) if len(replay.device_allocs) else 0
    steps = _num_steps(subject.device)
    smallest = None
    others = subject.most_outside
    if with_min_capacity:
        smallest = smallest_capacity(
            lambda size: subject.replay(replace(scenario, capacity_bytes=size), log=False), others
        )
    ahead = outlook(subject, scenario, fails=bool(len(failed) or undefined), with_rest=with_rest)
    moment, split = simulated_split(simulated, subject.at)
    policy = POLICIES[scenario.policy]
    prediction = Prediction(
        policy=scenario.policy,
        conf=scenario.conf,
        torch_version=scenario.torch_version,
        capacity_bytes=scenario.capacity_bytes,
        peak_reserved_bytes=peaks["reserved"],
        peak_allocated_bytes=peaks["allocated"],
        peak_requested_bytes=peaks["requested"],
        num_retries=int(replay.retries[-1]) if len(replay.retries) else 0,
        num_ooms=int(replay.ooms[-1]) if len(replay.ooms) else 0,
        first_oom=_first_oom(subject, scenario, replay, simulated, int(failed[0])) if len(failed) else None,
        fits=ahead.fits,
        outlook=ahead,
        num_device_allocs=obtained,
        num_device_frees=int(replay.device_frees[-1]) if len(replay.device_frees) else 0,
        fragmentation=split,
        moment=moment,
        saved_bytes=None if base is None else base - peaks["reserved"],
        num_release_cycles=int(np.count_nonzero(freed > 0)),
        num_calls_past_assertion=undefined,
        calibration_error_bytes=None
        if base is None or policy.standing == "uncalibrated"
        else subject.calibration.error_bytes,
        is_recorded=kept,
        device_allocs_per_step=obtained / steps if steps else None,
        min_capacity_bytes=smallest,
        details=policy.details(replay),
        standing=policy.standing,
        usable_bytes=None
        if replay.capacity_bytes is None
        else _smaller(replay.capacity_bytes - others, replay.limit_bytes),
        min_usable_bytes=None if smallest is None else smallest - others,
    )
    return prediction, replay, simulated


def report_of(
    subject: Subject, results: tuple[Prediction, ...], *, with_min_capacity: bool = False
) -> PredictionReport:
    """Returns the report on simulations of one recording."""
    unlimited = any(result.capacity_bytes is None for result in results)
    return PredictionReport(
        path=subject.trace.path,
        device=subject.device.device,
        num_events=subject.device.num_events,
        calibration=calibration_report(subject, unlimited=unlimited),
        recorded=recorded_run(subject),
        results=results,
        capacity_bytes=subject.limits.capacity_bytes,
        is_capacity_known=subject.limits.is_known,
        with_min_capacity=with_min_capacity,
        is_phantom=subject.trace.phantom,
        card=card_of(subject, [result.conf for result in results]),
    )


def calibration_report(subject: Subject, *, unlimited: bool = True) -> CalibrationReport:
    """Returns how exactly the recorded settings reproduce the recording.

    Args:
        unlimited: Whether a simulated run has no capacity limit.
    """
    found = subject.calibration
    first = found.first
    return CalibrationReport(
        num_events=found.events if found.exact is not None else subject.device.num_events,
        num_exact=found.exact,
        exact_fraction=found.exact_fraction,
        first_divergence=None
        if first is None
        else FirstDivergence(first.event, first.what, first.expected, first.got, first.cause),
        calibration_error_bytes=found.error_bytes,
        num_requests=found.num_requests or 0,
        num_exact_requests=found.exact_requests or 0,
        torch_version=found.torch_version,
        notes=tuple(_notes(subject, unlimited=unlimited)),
    )


def _notes(subject: Subject, *, unlimited: bool) -> list[Phrase]:
    """Returns the assumptions."""
    found, limits, device = subject.calibration, subject.limits, subject.device
    if subject.trace.format == PLAIN_EVENTS:
        return []
    peak, capacity = subject.comparable_peak, limits.capacity_bytes
    refused = limits.num_refused > 0 and not limits.is_known and capacity is not None
    assumed = {
        "foreign": subject.is_foreign,
        "version": found.exact is not None and not found.is_version_known,
        "settings": found.exact is not None and not found.is_conf_known,
        "refused": refused,
        "unlimited": not refused and capacity is None and unlimited,
        "compared": found.exact is None and peak is not None,
        "start": device.start["active"] > 0 and device.has_addresses,
    }
    values = {
        "backend": subject.trace.backend,
        "version": found.torch_version,
        "bytes": format_bytes(capacity),
        "peak": format_bytes(peak),
    }
    said = [phrase(f"simulate.note.{name}", **values) for name, is_assumed in assumed.items() if is_assumed]
    scratch = subject.trace.recorded.ended.scratch if subject.trace.recorded is not None else None
    if scratch is not None and scratch.more_bytes:
        said.append(phrase("scratch.note", bytes=format_bytes(scratch.more_bytes)))
    return said


def simulated_peak(subject: Subject, replay: Replay, name: str, *, kept: bool) -> int:
    """Returns the highest bytes of a curve of a replay.

    Args:
        kept: Whether the replay starts with the memory from before the trace.
    """
    values = getattr(replay, name)
    start = (
        subject.device.start[name] if kept and subject.device.has_addresses and len(subject.workload.start.base) else 0
    )
    return max(int(values.max(initial=0)), start, 0)


def _num_steps(device: DeviceTrace) -> int:
    steps = np.unique(device.events.step[device.events.step >= 0])
    return len(steps)


def _first_oom(subject: Subject, scenario: Scenario, replay: Replay, simulated: Simulated, call: int) -> FirstOom:
    workload, device, trace = subject.workload, subject.device, subject.trace
    tensor, row = int(workload.tensor[call]), int(workload.row[call])
    name, site = "", ""
    if 0 <= tensor < len(device.tensors):
        name = name_of(DeviceView(trace, device, row), tensor)
        site = trace.stacks.label(int(device.tensors.stack[tensor]))
    elif 0 <= row < device.num_events:
        site = trace.stacks.label(int(device.events.stack[row]))
    requested, reserved = int(workload.size[call]), int(replay.reserved[call])
    room = _room(workload, replay, call)
    policy = POLICIES[scenario.policy]
    conf, rules = parameters(policy, scenario.conf, scenario.torch_version)
    _, segment = policy.block_and_segment_sizes(np.array([requested], np.int64), conf, rules)
    missing = None if room is None else max(int(segment[0]) - (room - reserved), 0)
    return FirstOom(
        at_event=row,
        requested_bytes=requested,
        name=name,
        site=site,
        reserved_bytes=reserved,
        allocated_bytes=int(replay.allocated[call]),
        usable_bytes=room,
        shortfall_bytes=missing,
        largest_free_bytes=_largest_free_at_failure(simulated, row),
    )


def _largest_free_at_failure(simulated: Simulated, row: int) -> int | None:
    """Returns the largest free block in the pool and stream of a failed request, or None if unknown.

    It is measured at the failure, after the allocator released its cached segments, as in the report on a recording.
    """
    device = simulated.device
    references = device.references
    mine = np.flatnonzero(references.failed & (simulated.row[references.at_event] == row))
    if not len(mine) or references.largest_free[mine[0]] < 0:
        return None
    at, group, size = (int(column[mine[0]]) for column in (references.at_event, references.group, references.size))
    return would_fit(device.topology(at), group, size).largest_free_bytes


def _smaller(room: int, limit: int | None) -> int:
    return room if limit is None else min(room, limit)


def _room(workload: Workload, replay: Replay, call: int) -> int | None:
    """Returns the bytes that the allocator could reserve at a call."""
    others = workload.size[:call][workload.op[:call] == EXTERNAL]
    held = int(others[-1]) if len(others) else 0
    rooms = [] if replay.capacity_bytes is None else [replay.capacity_bytes - held]
    if replay.limit_bytes is not None:
        rooms.append(replay.limit_bytes)
    return min(rooms) if rooms else None


def recorded_run(subject: Subject) -> RecordedRun:
    """Returns the recorded peaks, retries, failures and driver calls."""
    trace, device = subject.trace, subject.device
    at = device.peak("reserved") if device.num_events else -1
    known = device.has_addresses and bool(device.num_events)
    count = np.bincount(device.events.action, minlength=len(schema.ACTIONS))
    obtained = int(count[schema.SEGMENT_ALLOC] + count[schema.SEGMENT_MAP]) if known else None
    steps = _num_steps(device)
    settings = AllocatorSettings.of(trace)
    moment, split = recorded_split(trace, device, subject.at)
    return RecordedRun(
        peak_reserved_bytes=recorded_peak(device, "reserved"),
        peak_allocated_bytes=recorded_peak(device, "allocated"),
        num_retries=count_retries(DeviceView(trace, device, at), settings) if known else None,
        num_ooms=int(count[schema.OOM]) if known else None,
        num_device_allocs=obtained,
        device_allocs_per_step=obtained / steps if steps and obtained is not None else None,
        fragmentation=split,
        policy=subject.calibration.policy,
        conf=subject.calibration.conf if known else None,
        moment=moment,
    )


def default_version(trace: Trace, device: DeviceTrace) -> str:
    """Returns the version of the recording if the trace contains it, else the newest fully supported one."""
    return DEFAULT_VERSION if trace.format == PLAIN_EVENTS else recorded_settings(trace, device).versions[0]


def num_requests(workload: Workload) -> int:
    """Returns the number of allocations of a workload."""
    return int(np.count_nonzero(workload.op == ALLOC))
