"""A plan for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.results.plan import PlanReport

LAYOUT = JsonLayout(
    name="plan",
    title="memdiag plan --json",
    meaning="Addresses for tensors whose lifetimes are known in advance, in as little memory as possible.",
    version=2,
    root=PlanReport,
    shapes=(
        Shape(
            PlanReport,
            (
                "path",
                "format",
                "device",
                "interval_ends",
                "num_buffers",
                "num_empty",
                "alignment_bytes",
                "capacity_bytes",
                "live_peak_bytes",
                "requested_peak_bytes",
                "height_bytes",
                ShapeKey("ratio", lambda report: round(report.ratio, 6), float, "height_bytes / live_peak_bytes."),
                "lower_bound_bytes",
                "fits",
                # A plan that fails its verification is never shown.
                ShapeKey("verified", lambda _: True, bool, "Whether the plan was verified by an independent checker."),
                "method",
                "stop_reason",
                ShapeKey(
                    "seconds", lambda report: round(report.seconds, 3), float, "Duration of the search in seconds."
                ),
                "time_limit_seconds",
                "seed",
                ShapeKey(
                    "height_bytes_by_method",
                    lambda report: {each.name: each.height_bytes for each in report.rivals},
                    dict[str, int | None],
                    (
                        "Bytes that other placement methods need for the same buffers; null: not tried, as it would "
                        "take too long."
                    ),
                ),
                "recorded_peak_reserved_bytes",
                "output",
                "usable_bytes",
                "outside_bytes",
            ),
        ),
    ),
)


def render(report: PlanReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)
