"""JSON conversion shared by all ``--json`` outputs: values as JSON types; findings, cards and moments as dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any

from memdiag.results.finding import Finding
from memdiag.results.outlook import Outlook
from memdiag.results.report import CardReport, Peak, ReportMoment, Usage
from memdiag.text import text_of

_LARGEST = 1 << 1000
DEEPEST = 20  # settings come from a file, which may nest them without limit


def as_json(value: Any, depth: int = 0) -> Any:
    """Returns ``value`` in JSON types: numpy numbers as numbers, NaN as null, text as valid Unicode."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Integral):
        return int(value) if abs(int(value)) < _LARGEST else text_of(int(value))
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            return {as_json(text_of(key)): as_json(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [as_json(item, depth + 1) for item in value]
    return as_json(text_of(value))


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Returns the bytes of one moment."""
    names = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
    return {name: getattr(usage, name) for name in names}


def peak_dict(peak: Peak) -> dict[str, Any]:
    """Returns the bytes of a peak, and its event."""
    return {**usage_dict(peak), "at_event": peak.at_event, "at_us": peak.at_us, "phase": peak.phase, "step": peak.step}


def moment_dict(moment: ReportMoment) -> dict[str, Any]:
    """Returns the moment of a report as in JSON."""
    return {"kind": moment.kind, **peak_dict(moment), "lost_bytes": moment.lost_bytes}


def card_dict(card: CardReport) -> dict[str, Any]:
    """Returns the facts about device memory, in bytes, as every ``--json`` shows them."""
    return {
        "capacity_bytes": card.capacity_bytes,
        "usable_bytes": card.usable_bytes,
        "outside_bytes": card.outside_bytes,
        "outside_basis": card.outside_basis or None,
        "outside_at_start_bytes": card.outside_at_start_bytes,
        "outside_at_peak_bytes": card.outside_at_peak_bytes,
        "outside_at_end_bytes": card.outside_at_end_bytes,
        "memory_fraction": card.memory_fraction,
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


def outlook_dict(outlook: Outlook) -> dict[str, Any]:
    """Returns the facts about a run beyond the recorded failed allocation."""
    return {
        "failed_at_event": outlook.failed_at_event,
        "failed_request_bytes": outlook.failed_request_bytes,
        "failed_step": outlook.failed_step if outlook.failed_step >= 0 else None,
        "estimate": None
        if outlook.estimate is None
        else {**asdict(outlook.estimate), "step": outlook.estimate.step if outlook.estimate.step >= 0 else None},
        "rerun_command": outlook.rerun_command,
    }
