"""The pictures that ``memdiag plot`` has written, for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.results.written import WrittenPictures

LAYOUT = JsonLayout(
    name="plot",
    title="memdiag plot --json",
    meaning="The pictures that memdiag plot has written.",
    version=1,
    root=WrittenPictures,
    has_program_version=False,
)


def render(report: WrittenPictures, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the pictures as one JSON object."""
    return LAYOUT.text(report)
