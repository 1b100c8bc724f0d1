"""Allocator settings for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.render.support.shapes import FINDING
from memdiag.results.conf import ConfReport

LAYOUT = JsonLayout(
    name="conf",
    title="memdiag conf --json",
    meaning="Allocator settings, explained and checked.",
    version=2,
    root=ConfReport,
    shapes=(FINDING,),
    has_program_version=False,
)


def render(report: ConfReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end."""
    return LAYOUT.text(report)
