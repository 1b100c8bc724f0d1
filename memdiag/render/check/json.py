"""The result of a check, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape
from memdiag.results.check import CheckedSite, CheckReport, DeviceCheck

LAYOUT = JsonLayout(
    name="check",
    title="memdiag check --json",
    meaning="Traces checked against budgets and a baseline.",
    version=2,
    root=CheckReport,
    shapes=(
        Shape(
            CheckReport,
            ("status", "exit_code", "verdict", "traces", "missing", "baseline", "changes", "notes"),
            null_if_empty=frozenset({"baseline"}),
        ),
        Shape(
            DeviceCheck,
            ("key", "path", "device", "status", "error", "checks", "sites", "metrics", "facts"),
            null_if_empty=frozenset({"error"}),
        ),
        Shape(CheckedSite, null_if_empty=frozenset({"file", "line", "baseline_line"})),
    ),
)


def render(report: CheckReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)
