"""The files that ``memdiag export`` has written, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.results.written import ExportedFiles

LAYOUT = JsonLayout(
    name="export",
    title="memdiag export --json",
    meaning="The files that memdiag export has written.",
    version=1,
    root=ExportedFiles,
    has_program_version=False,
)


def render(report: ExportedFiles, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the files as one JSON object."""
    return LAYOUT.text(report)
