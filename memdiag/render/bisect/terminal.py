"""The result of a search for the commit or version that raised the peak, for a terminal."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.bisect import BisectReport, BisectStep
from memdiag.text import phrase, plain
from memdiag.units import format_bytes

_STYLES = {"good": "green", "bad": "red", "skipped": "yellow"}


def render(report: BisectReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(plain(report.verdict), "bold")
    if report.sites:
        page.gap()
        page.text(phrase("bisect.sites", good=plain(report.last_good)), "dim")
        for site in report.sites:
            more = format_bytes(site.bad_bytes - site.good_bytes)
            page.text(phrase("bisect.site", bytes=more, place=plain(site.label, 90)), indent=2)
            if site.inside:
                page.text(phrase("bisect.inside", place=plain(site.inside, 120)), indent=4)
    if len(report.candidates) > 1:
        page.gap()
        page.text(phrase("bisect.candidates", names=", ".join(plain(name) for name in report.candidates)), "yellow")
    page.gap()
    page.text(phrase("bisect.steps", metric=report.metric, limit=format_bytes(report.budget_bytes)), "dim")
    page.grid(
        "lrlw",
        [
            (
                plain(step.name),
                format_bytes(step.peak_bytes) if step.peak_bytes is not None else "-",
                (phrase(f"bisect.{step.status}"), _STYLES[step.status]),
                plain(step.reason or step.title),
            )
            for step in report.steps
        ],
    )
    return page.finish()


def line(step: BisectStep) -> str:
    """Returns one run in a line, for progress."""
    peak = "-" if step.peak_bytes is None else format_bytes(step.peak_bytes)
    words = [plain(step.name), peak, phrase(f"bisect.{step.status}"), plain(step.reason or step.title)]
    return "  ".join(word for word in words if word)
