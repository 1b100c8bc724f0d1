"""Pages of the documentation for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memdiag.manual import ManualPage
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout


@dataclass(frozen=True)
class Pages:
    """Pages of the documentation.

    Attributes:
        pages: The pages, in the order in which they were asked for.
    """

    pages: tuple[ManualPage, ...]


LAYOUT = JsonLayout(
    name="explain",
    title="memdiag explain --json",
    meaning="Pages of memdiag's documentation.",
    version=1,
    root=Pages,
    has_program_version=False,
)


def render(
    pages: Sequence[ManualPage],
    look: Look = PLAIN,  # noqa: ARG001 - all renderers have the same signature
) -> str:
    """Returns the pages as one JSON object."""
    return LAYOUT.text(Pages(tuple(pages)))
