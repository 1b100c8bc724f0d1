"""The plan of an inference server, for a terminal."""

from __future__ import annotations

from memdiag.render.serve_fit import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.serve_fit import ServeFitReport
from memdiag.text import phrase, plain
from memdiag.units import format_bytes


def render(report: ServeFitReport, look: Look = PLAIN) -> str:
    """Returns the report for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(plain(words.title(report)), "bold")
    page.text(plain(words.subject(report)))
    page.gap()
    page.columns("rrrrrrr", [words.head(), *(words.row(plan) for plan in report.plans)])
    shown = words.shown(report)
    if shown is not None:
        page.title(phrase("serve_fit.parts", count=shown.tp))
        page.columns("wrl", words.parts(shown))
        if shown.token_bytes:
            page.text(phrase("serve_fit.token", size=format_bytes(shown.token_bytes)), indent=2)
    if shown is not None and shown.flags:
        page.title(phrase("serve_fit.flags"))
        page.paste(" ".join(shown.flags), 2)
        if shown.cache_flag:
            page.text(phrase("serve_fit.cache-flag"))
            page.paste(shown.cache_flag, 2)
    else:
        page.gap()
        page.text(phrase("serve_fit.none", context=report.context))
    page.gap()
    for note in report.notes:
        page.text(note)
    if shown is not None and shown.flags:
        page.text(phrase("serve_fit.verify"))
    return page.finish()
