"""The plan of an inference server, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.results.serve_fit import ServeFitReport

LAYOUT = JsonLayout(
    name="serve-fit",
    title="memdiag serve-fit --json",
    meaning="Context, requests and flags of an inference server that fit on a card.",
    version=1,
    root=ServeFitReport,
)


def render(report: ServeFitReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object."""
    return LAYOUT.text(report)
