"""The memory account of an inference server, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.serving import ServingCard, ServingFailure, ServingPart, ServingReport, ServingUse, UsePoint

LAYOUT = JsonLayout(
    name="serving",
    title="memdiag serving --json",
    meaning="Memory of an inference server, from its start-up log.",
    version=1,
    root=ServingReport,
    shapes=(
        Shape(ServingReport, null_if_empty=frozenset({"version"})),
        Shape(ServingCard, null_if_empty=frozenset({"who", "total_line"})),
        Shape(ServingPart, null_if_empty=frozenset({"line", "text"})),
        Shape(ServingFailure),
        Shape(ServingUse, null_if_empty=frozenset({"peak_line", "peak_time"})),
        Shape(UsePoint, null_if_empty=frozenset({"time"})),
    ),
)


def render(report: ServingReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object."""
    return LAYOUT.text(report)
