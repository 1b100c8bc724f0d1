"""Many ranks for programs: keys, order and units as in docs/fleet.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.tune import json as tune_json
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport, HeatMap, Tuned


def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end.

    ``look`` and ``top`` are not used: all is in it.
    """
    return json.dumps(as_dict(report), indent=1, allow_nan=False) + "\n"


def as_dict(report: FleetReport) -> dict[str, Any]:
    """Returns the report as ``memdiag fleet --json`` shows it."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "verdict": list(report.verdict),
        "num_ranks": len(report.ranks),
        "num_ran_out": sum(row.ran_out for row in report.ranks),
        "world": report.world,
        "backends": list(report.backends),
        "phantom": report.phantom,
        "ranks": [asdict(row) for row in report.ranks],
        "groups": [asdict(group) for group in report.groups],
        "odd": [
            {**asdict(odd), "places": [{"place": place, "delta_bytes": more} for place, more in odd.places]}
            for odd in report.odd
        ],
        "distribution": [asdict(each) for each in report.bins],
        "findings": [asdict(finding) for finding in report.findings],
        "heatmap": None if report.heat is None else _heat(report.heat),
        "broken": [asdict(broken) for broken in report.broken],
        "notes": list(report.notes),
        "tuned": None if report.tuned is None else _tuned(report.tuned),
    }
    result: dict[str, Any] = as_json(shown)
    return result


def _heat(heat: HeatMap) -> dict[str, Any]:
    return {
        "what": f"peak {heat.what} bytes",
        "along": heat.along,
        "columns": list(heat.columns),
        "rows": [{"rank": rank, "bytes": list(row)} for rank, row in zip(heat.ranks, heat.rows, strict=True)],
    }


def _tuned(tuned: Tuned) -> dict[str, Any]:
    return {
        "searched_on_ranks": list(tuned.ranks),
        "search": tune_json.as_dict(tuned.report),
        "checked": None if tuned.checked is None else asdict(tuned.checked),
    }
