"""Names and titles of the documentation pages, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.manual import Page
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage


def render(pages: Sequence[Page], look: Look = PLAIN) -> str:
    """Returns the names and titles of the pages."""
    out = TerminalPage(look)
    for title, is_finding in (("Findings and notes", True), ("Other pages", False)):
        out.title(title)
        out.grid("lw", [[(page.name, "cyan"), page.title] for page in pages if page.is_finding == is_finding])
    out.gap()
    out.text("memdiag explain NAME shows one.", "dim")
    return out.finish()
