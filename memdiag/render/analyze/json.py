"""The report for programs: keys, order and units as documented in docs/json.md, ``schema_version`` 1.

Byte counts are integers, what the source cannot know is null, and the text is plain ASCII JSON, so that it survives any
pipe.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from memdiag.render.support.card import verdict_of
from memdiag.render.support.json import as_json, card_dict, finding_dict, moment_dict, peak_dict, usage_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.words import in_order
from memdiag.results.report import DeviceReport, Report
from memdiag.version import __version__

COUNTS = ("num_segments_allocated", "num_segments_freed", "num_retries", "num_ooms")


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


def _device(device: DeviceReport) -> dict[str, Any]:
    sites = device.top_sites
    return {
        "device": device.device,
        "end": usage_dict(device.end),
        "peak": peak_dict(device.peak),
        "peak_allocated": peak_dict(device.peak_allocated),
        "fragmentation": asdict(device.fragmentation),
        "counts": {name: device.counts.get(name) for name in COUNTS},
        "by_category": device.by_category,
        "by_lifetime": device.by_lifetime,
        "top_sites": None
        if sites is None
        else [
            {"bytes": s.bytes, "num_tensors": s.num_tensors, "stack": list(s.stack), "name": s.name, "names": s.names}
            for s in sites
        ],
        "by_module": None if device.by_module is None else [asdict(module) for module in device.by_module],
        "card": None if device.card is None else card_dict(device.card),
        "moment": None if device.moment is None else moment_dict(device.moment),
    }
