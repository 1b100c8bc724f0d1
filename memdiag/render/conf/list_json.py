"""The table of all allocator settings for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout
from memdiag.results.conf import Listing

LAYOUT = JsonLayout(
    name="conf-list",
    title="memdiag conf --list --json",
    meaning="All allocator settings and environment variables that memdiag knows.",
    version=1,
    root=Listing,
    has_program_version=False,
)


def render(table: Listing, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the table as one JSON object."""
    return LAYOUT.text(table)
