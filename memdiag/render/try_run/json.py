"""A rerun compared with its prediction, for programs: the content of ``try.json``, in English."""

from __future__ import annotations

from typing import Any

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.tried import RankComparison, TryReport

LAYOUT = JsonLayout(
    name="try",
    title="try.json of memdiag try",
    meaning="A rerun with other allocator settings, compared with its prediction.",
    version=2,
    root=TryReport,
    shapes=(
        Shape(TryReport, ("variable", "conf", "exit_status", "ranks")),
        Shape(
            RankComparison,
            (
                "name",
                "num_shared_allocations",
                "num_recorded_allocations",
                "num_measured_allocations",
                "recorded_peak_bytes",
                "predicted_peak_bytes",
                "measured_peak_bytes",
                "num_recorded_ooms",
                "num_predicted_ooms",
                "num_measured_ooms",
                "whole_run_peak_bytes",
                "whole_run_num_ooms",
                "calibration",
                "recorded_failure",
                "measured_failure",
                "error_bytes",
                "outcome",
            ),
        ),
    ),
    has_program_version=False,
)


def render(report: TryReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the comparison as one JSON object, in English."""
    return LAYOUT.text(report, "en")


def as_dict(report: TryReport) -> dict[str, Any]:
    """Returns the content of ``try.json``."""
    return LAYOUT.as_dict(report, "en")
