"""The retained facts of one rank's diagnosis: a few kilobytes of plain numbers and words, in JSON types.

Only these are used to compare a thousand ranks, so they contain everything that distinguishes ranks. They have the live
memory at the allocated peak by kind of tensor and part of the model, with counts (twice as many tensors have another
cause than tensors twice as large), the parameters, the largest input, and the highest bytes of each step. All byte
counts are those of blocks, so that they add up to the active bytes of that moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import NO_MODULE, module_of
from memdiag.analyzers.support.sites import by_category, label_of, stackless
from memdiag.results.finding import Finding
from memdiag.results.report import DeviceReport, Report
from memdiag.runs.cards import uses_of
from memdiag.text import in_language
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, has_history
from memdiag.trace.names import collapsed
from memdiag.trace.table import Array, highest_in_parts

VERSION = 6  # of these facts; stored facts of another version are computed again
MOST_PARTS, MOST_PLACES, MOST_PARAMETERS = 60, 60, 200
MOST_STEPS = 128  # with more, several steps share one column
CURVE = 48  # columns of the curve of a trace without steps
EXPERTS = " (experts)"  # suffix of a part that belongs to a mixture of experts
_REST = "(the rest)"
_EXPERT = re.compile(r"(?<![A-Za-z])(?:experts?|moe)(?![a-z])|MoE|Experts?(?![a-z])")
_MOMENT = re.compile(r"\bevent [\d,]|^before the trace|^the snapshot|^step \d|^segment |^[\d,]+ \w+$")
_PARAMETER, _INPUT = (schema.CATEGORIES.index(name) for name in ("parameter", "input"))
_OF_PARAMETERS = tuple(schema.CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state"))


def facts_of(trace: Trace, at: str | int = DEFAULT) -> dict[str, Any]:
    """Diagnoses a trace and returns the facts for comparing ranks.

    ``at`` is the moment, as in ``memdiag.trace.moments``.
    """
    report = build_report(trace, at=at, top=10, replay=False)
    recorded = trace.recorded
    facts: dict[str, Any] = {
        "rank": recorded.rank if recorded else None,
        "world": recorded.world if recorded else None,
        "backend": trace.backend,
        "torch_version": trace.torch_version,
        "phantom": trace.phantom,
        "num_events": trace.num_events,
        "headline": report.headline,
        "conf": AllocatorSettings.of(trace).text,
        "findings": [_finding(finding) for finding in report.findings],
        "notes": [[note.code, note.text] for note in report.notes],
        "uses": uses_of(trace),
    }
    chosen = _worst(trace, report)
    if chosen is None:
        return {**facts, "device": None}
    device, said = chosen
    return {**facts, **_of_device(trace, device, said, at)}


def _worst(trace: Trace, report: Report) -> tuple[DeviceTrace, DeviceReport] | None:
    """Returns the worst device: one that ran out of memory, else the one that reserves most; None without devices."""
    said = {device.device: device for device in report.devices}
    pairs = [(device, said[device.device]) for device in trace.devices if device.device in said]

    def order(pair: tuple[DeviceTrace, DeviceReport]) -> tuple[int, int, int]:
        _, device_facts = pair
        most = [
            peak or end or 0
            for peak, end in (
                (device_facts.peak.reserved_bytes, device_facts.end.reserved_bytes),
                (device_facts.peak_allocated.allocated_bytes, device_facts.end.allocated_bytes),
            )
        ]
        return device_facts.counts.get("num_ooms") or 0, most[0], most[1]

    return max(pairs, key=order, default=None)


def _of_device(trace: Trace, device: DeviceTrace, said: DeviceReport, at: str | int) -> dict[str, Any]:
    (view,) = Context(at=at, device=device.device).views(trace)
    rows = device.live(view.at, pending=True)
    reserved, allocated = said.peak, said.peak_allocated
    known = has_history(device)
    parts, places, parameters = _held(view, rows)
    inputs = device.tensors.requested_bytes[device.tensors.category == _INPUT]
    width, steps = _steps(device)
    return {
        "device": device.device,
        "capacity_bytes": device.capacity_bytes,
        "outside_bytes": _outside(device, reserved.reserved_bytes),
        "peak_reserved_bytes": reserved.reserved_bytes if known else said.end.reserved_bytes,
        "peak_allocated_bytes": allocated.allocated_bytes if known else said.end.allocated_bytes,
        "has_history": known,
        "peak_step": reserved.step,
        "peak_phase": reserved.phase,
        "fullest_active_bytes": int(device.tensors.block_bytes[rows].sum()),
        "num_retries": said.counts.get("num_retries"),
        "failed": _failed(device),
        "by_category": by_category(view, rows),
        "parts": parts,
        "places": places,
        "parameters": parameters,
        "largest_input_bytes": int(inputs.max()) if len(inputs) else None,
        "step_width": width,
        "steps": steps,
        "curve": _curve(device),
    }


def _outside(device: DeviceTrace, reserved: int | None) -> int | None:
    """Returns the bytes outside the allocator that reduce the headroom, or None if unknown.

    That is the most at any sample. If it cannot have been there at the reserved peak, because other processes used the
    card at another time, it is what was there at the fullest sample.
    """
    most, fullest = device.card.outside_bytes, device.card.peak
    if most is None or fullest is None or device.capacity_bytes is None or reserved is None:
        return most
    return most if most + reserved <= device.capacity_bytes else fullest.outside_bytes


def _failed(device: DeviceTrace) -> dict[str, Any] | None:
    """Returns the last failed request, or None."""
    failed = np.flatnonzero(device.events.action == schema.OOM)
    if not len(failed):
        return None
    at = int(failed[-1])
    usage = device.usage_at(at)
    step, phase, free = int(device.events.step[at]), int(device.events.phase[at]), int(device.events.addr[at])
    return {
        "requested_bytes": int(device.events.size[at]),
        "at_event": at,
        "step": step if step >= 0 else None,
        "phase": schema.PHASES[phase] if phase > 0 else None,
        "allocated_bytes": usage["allocated"] if usage["allocated"] >= 0 else None,
        "reserved_bytes": usage["reserved"] if usage["reserved"] >= 0 else None,
        "device_free_bytes": free if free >= 0 else None,
    }


def _held(view: DeviceView, rows: Array) -> tuple[list[list[Any]], list[list[Any]], dict[str, list[int]]]:
    """Returns live memory by (kind, part of the model), by call site, and parameters by part.

    Each has bytes and number of tensors.
    """
    tensors = view.device.tensors
    keys = np.stack(
        [
            tensors.category[rows].astype(np.int64),
            tensors.name[rows].astype(np.int64),
            tensors.stack[rows].astype(np.int64),
        ]
    )
    if not keys.shape[1]:
        return [], [], {}
    distinct, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    count = np.bincount(group).tolist()
    held = np.bincount(group, weights=tensors.block_bytes[rows]).astype(np.int64).tolist()
    parts: dict[tuple[str, str], list[int]] = {}
    places: dict[str, list[int]] = {}
    parameters: dict[str, list[int]] = {}
    labels: dict[int, str] = {}
    experts: dict[int, bool] = {}
    for (category, name, stack), size, number in zip(distinct.T.tolist(), held, count, strict=True):
        kind = schema.CATEGORIES[category]
        if stack not in labels:
            labels[stack] = label_of(view, stack) or stackless()
            experts[stack] = any(_EXPERT.search(f"{frame.filename} {frame.name}") for frame in view.trace.stacks[stack])
        place = labels[stack]
        text = view.trace.strings[name] if name >= 0 else ""
        part = module_of(text, of_parameter=category in _OF_PARAMETERS) if text else ""
        part = part if part and part != NO_MODULE else collapsed(text) or place
        if experts[stack] or _EXPERT.search(text):
            part += EXPERTS
        _add(parts, (kind, part), size, number)
        _add(places, place, size, number)
        if category == _PARAMETER:
            _add(parameters, part, size, number)
    return (
        [[*key, *entry] for key, entry in _largest(parts, MOST_PARTS, lambda key: (key[0], _REST))],
        [[key, *entry] for key, entry in _largest(places, MOST_PLACES, lambda _: _REST)],
        dict(_largest(parameters, MOST_PARAMETERS, lambda _: _REST)),
    )


def _largest(table: Mapping[Any, list[int]], most: int, rest: Any) -> list[tuple[Any, list[int]]]:
    """Returns the entries with most bytes; those beyond ``most`` are summed under the key from ``rest``."""
    entries = sorted(table.items(), key=lambda item: (-item[1][0], item[0]))
    kept = dict(entries[:most])
    for key, (size, number) in entries[most:]:
        _add(kept, rest(key), size, number)
    return list(kept.items())


def _add(table: dict[Any, list[int]], key: Any, size: int, number: int) -> None:
    entry = table.setdefault(key, [0, 0])
    entry[0] += size
    entry[1] += number


def _steps(device: DeviceTrace) -> tuple[int, list[list[int]]]:
    """Returns the highest reserved and allocated bytes of each step.

    The result is (steps per column, [first step, reserved, allocated]).

    A column has a power of two of steps, so that the columns of several ranks can be aligned.
    """
    step = device.events.step
    inside = step >= 0
    if not inside.any():
        return 1, []
    first, last, width = int(step[inside].min()), int(step.max()), 1
    while last // width - first // width >= MOST_STEPS:
        width *= 2
    column = step[inside] // width - first // width
    most = np.full((2, last // width - first // width + 1), -1, np.int64)
    np.maximum.at(most[0], column, device.usage.reserved[inside])
    np.maximum.at(most[1], column, device.usage.allocated[inside])
    there = np.bincount(column, minlength=most.shape[1]) > 0
    return width, [
        [(number + first // width) * width, int(most[0][number]), int(most[1][number])]
        for number in np.flatnonzero(there).tolist()
    ]


def _curve(device: DeviceTrace) -> list[int]:
    """Returns the highest reserved (else allocated) bytes in equal parts of the trace; empty if unknown."""
    n = device.num_events
    values = device.usage.reserved if n and (device.usage.reserved >= 0).any() else device.usage.allocated
    if n < 2 or not (values >= 0).any():
        return []
    most: list[int] = highest_in_parts(values, min(CURVE, n)).tolist()
    return most


def _finding(finding: Finding) -> dict[str, Any]:
    """Returns a finding with its call site: findings of several ranks with one code and call site are merged."""
    where = next(
        (item.where for item in finding.evidence if item.where and not _MOMENT.search(in_language(item.where, "en"))),
        "",
    )
    return {
        "code": finding.code,
        "title": finding.title,
        "severity": finding.severity,
        "weight_bytes": int(finding.weight_bytes),
        "place": collapsed(where),
        "fixes": [[fix.title, fix.kind, fix.change, fix.applicability, fix.caveat] for fix in finding.fixes],
    }
