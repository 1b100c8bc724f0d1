"""The result of a search for the commit or version that raised the peak, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.bisect import BisectReport, BisectStep, GrownSite

LAYOUT = JsonLayout(
    name="bisect",
    title="memdiag bisect --json",
    meaning="The commit or package version that raised the peak.",
    version=1,
    root=BisectReport,
    shapes=(
        Shape(BisectReport, null_if_empty=frozenset({"package", "first_bad"})),
        Shape(GrownSite, null_if_empty=frozenset({"inside"})),
        Shape(BisectStep, null_if_empty=frozenset({"title", "reason"})),
    ),
)


def render(report: BisectReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)
