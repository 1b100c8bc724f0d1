"""Patterns found in source code, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import FINDING
from memdiag.results.lint import LintReport

LAYOUT = JsonLayout(
    name="lint",
    title="memdiag lint --json",
    meaning="Habits in source code that cost device memory.",
    version=1,
    root=LintReport,
    shapes=(
        Shape(
            LintReport,
            (
                "num_files",
                "num_ignored",
                ShapeKey(
                    "num_unchecked", lambda report: len(report.unchecked), int, "Number of files that were not checked."
                ),
                "findings",
                "notes",
            ),
        ),
        FINDING,
    ),
    has_program_version=False,
)


def render(report: LintReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end."""
    return LAYOUT.text(report)
