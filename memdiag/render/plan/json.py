"""A plan for programs: keys, order and units as in docs/plan.md, ``schema_version`` 1."""

from __future__ import annotations

import json

from memdiag.render.support.json import as_json
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.plan import PlanReport
from memdiag.version import __version__


def render(report: PlanReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "source": report.source,
        "format": report.format,
        "device": report.device,
        "ends": report.ends,
        "num_buffers": report.num_buffers,
        "num_empty": report.num_empty,
        "align_bytes": report.align,
        "capacity_bytes": report.capacity_bytes,
        "load_bytes": report.load_bytes,
        "requested_bytes": report.requested_bytes,
        "height_bytes": report.height_bytes,
        "ratio": round(report.ratio, 6),
        "bound_bytes": report.bound_bytes,
        "fits": report.fits,
        "verified": True,  # a plan that fails is never shown
        "method": report.method,
        "ended": report.ended,
        "seconds": round(report.seconds, 3),
        "seconds_allowed": report.seconds_allowed,
        "seed": report.seed,
        "compared": {rival.name: rival.height_bytes for rival in report.rivals},
        "recorded_reserved_bytes": report.recorded_bytes,
        "output": report.output,
        "room_bytes": report.room_bytes,
        "outside_bytes": report.outside_bytes,
    }
    return json.dumps(as_json(shown), indent=2, allow_nan=False) + "\n"
