"""The report for programs: keys, order and units as documented in docs/json.md, ``schema_version`` 1.

Byte counts are integers, what the source cannot know is null, and the text is plain ASCII JSON, so that it survives any pipe.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any

from memdiag.render.support.card import verdict_of
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.text import text_of
from memdiag.render.support.words import in_order
from memdiag.results.finding import Finding
from memdiag.results.report import CardReport, DeviceReport, Peak, Report, ReportMoment, Usage
from memdiag.version import __version__

COUNTS = ("num_segments_allocated", "num_segments_freed", "num_retries", "num_ooms")
_LARGEST = 1 << 1000
_DEEPEST = 20  # settings come from a file, and a file may nest them without end


def render(report: Report, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return json.dumps(as_dict(report), indent=2, allow_nan=False) + "\n"


def as_dict(report: Report) -> dict[str, Any]:
    """Returns the report as ``memdiag analyze --json`` shows it: dicts, lists, str, int, float, bool and None only."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "verdict": asdict(verdict_of(report)),
        "source": asdict(report.source),
        "devices": [_device(device) for device in report.devices],
        "settings": report.settings,
        "findings": [finding_dict(finding) for finding in in_order(report.findings)],
        "what_if": [asdict(result) for result in report.what_if],
        "notes": [{"code": note.code, "text": note.text} for note in report.notes],
    }
    if report.would_fit:
        shown["would_fit"] = [asdict(each) for each in report.would_fit]
    result: dict[str, Any] = as_json(shown)
    return result


def _usage(usage: Usage) -> dict[str, Any]:
    names = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
    return {name: getattr(usage, name) for name in names}


def _peak(peak: Peak) -> dict[str, Any]:
    return {**_usage(peak), "at_event": peak.at_event, "at_us": peak.at_us, "phase": peak.phase, "step": peak.step}


def moment_dict(moment: ReportMoment) -> dict[str, Any]:
    """Returns the moment of a report as JSON states it."""
    return {"kind": moment.kind, **_peak(moment), "lost_bytes": moment.lost_bytes}


def _device(device: DeviceReport) -> dict[str, Any]:
    sites = device.top_sites
    return {
        "device": device.device,
        "end": _usage(device.end),
        "peak": _peak(device.peak),
        "peak_allocated": _peak(device.peak_allocated),
        "fragmentation": asdict(device.fragmentation),
        "counts": {name: device.counts.get(name) for name in COUNTS},
        "by_category": device.by_category,
        "by_lifetime": device.by_lifetime,
        "top_sites": None
        if sites is None
        else [{"bytes": s.bytes, "num_tensors": s.num_tensors, "stack": list(s.stack), "name": s.name, "names": s.names} for s in sites],
        "by_module": None if device.by_module is None else [asdict(module) for module in device.by_module],
        "card": None if device.card is None else card_dict(device.card),
        "moment": None if device.moment is None else moment_dict(device.moment),
    }


def card_dict(card: CardReport) -> dict[str, Any]:
    """Returns what is known of a card, in bytes, as every ``--json`` shows it."""
    return {
        "capacity_bytes": card.capacity_bytes,
        "room_bytes": card.room_bytes,
        "outside_bytes": card.outside_bytes,
        "outside_basis": card.outside_basis or None,
        "outside_at_start_bytes": card.at_start_bytes,
        "outside_at_peak_bytes": card.at_peak_bytes,
        "outside_at_end_bytes": card.at_end_bytes,
        "memory_fraction": card.fraction,
        "notes": list(card.notes),
    }


def finding_dict(finding: Finding) -> dict[str, Any]:
    """Returns a finding as every ``--json`` shows it."""
    return {
        "code": finding.code,
        "title": finding.title,
        "severity": finding.severity,
        "device": finding.device,
        "evidence": [asdict(evidence) for evidence in finding.evidence],
        "fixes": [asdict(fix) for fix in finding.fixes],
        "saving": None if finding.saving is None else asdict(finding.saving),
    }


def as_json(value: Any, depth: int = 0) -> Any:
    """Returns ``value`` in the types of JSON: numpy numbers as numbers, what is no number (NaN) as null, text as valid Unicode."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Integral):
        return int(value) if abs(int(value)) < _LARGEST else text_of(int(value))
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {as_json(text_of(key)): as_json(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [as_json(item, depth + 1) for item in value]
    return as_json(text_of(value))
