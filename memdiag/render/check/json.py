"""What was checked, for programs: keys, order and units as in docs/check.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.results.check import CheckReport, DeviceCheck


def render(report: CheckReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "status": report.status,
        "exit_code": report.exit_code,
        "verdict": report.verdict,
        "traces": [_checked(each) for each in report.checked],
        "missing": list(report.missing),
        "baseline": report.baseline or None,
        "changes": None if report.changes is None else list(report.changes),
        "notes": list(report.notes),
    }
    return json.dumps(as_json(shown), indent=2, allow_nan=False) + "\n"


def _checked(each: DeviceCheck) -> dict[str, Any]:
    return {
        "key": each.key,
        "path": each.path,
        "device": each.device,
        "status": each.status,
        "error": each.error or None,
        "checks": [asdict(judgement) for judgement in each.judgements],
        "holders": [
            {**asdict(holder), "file": holder.file or None, "line": holder.line or None, "was": holder.was or None}
            for holder in each.holders
        ],
        "metrics": dict(each.metrics),
        "facts": dict(each.facts),
    }
