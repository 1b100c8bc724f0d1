"""Names and titles of the documentation pages, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.manual import ManualPage
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.text import phrase


def render(pages: Sequence[ManualPage], look: Look = PLAIN) -> str:
    """Returns the names and titles of the pages."""
    out = TerminalPage(look)
    for title, is_finding in ((phrase("explain.findings"), True), (phrase("explain.pages"), False)):
        out.title(title)
        out.grid("lw", [[(page.name, "cyan"), page.title] for page in pages if page.is_finding == is_finding])
    out.gap()
    out.text(phrase("explain.next"), "dim")
    return out.finish()
