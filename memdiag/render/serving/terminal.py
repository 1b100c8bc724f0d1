"""The memory account of an inference server, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.serving import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.finding import Fix
from memdiag.results.serving import ServingFailure, ServingReport
from memdiag.text import phrase, plain


def render(report: ServingReport, look: Look = PLAIN) -> str:
    """Returns the report for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(plain(words.title(report)), "bold")
    if not report.cards:
        page.text(phrase("serving.no-figures"), indent=2)
    for card, others in words.groups(report):
        page.gap()
        page.text(f"{plain(words.card_title(card))}: {words.whole(card)}")
        page.columns("wrrl", words.rows(card))
        if others:
            page.text(plain(phrase("serving.same", count=len(others), who=", ".join(others))), indent=2)
    if lines := words.requests(report):
        page.title(phrase("serving.requests"))
        for line in lines:
            page.text(line, indent=2)
    if report.use is not None:
        page.title(phrase("serving.use", samples=report.use.num_samples))
        if row := words.use_row(report.use, page.width - 2):
            page.text(row, indent=2)
            page.text(plain(words.use_over_time(report.use)), indent=2)
        for line in words.use(report.use):
            page.text(plain(line), indent=2)
        page.text(words.use_means(report.use), indent=2)
        _fixes(page, report.use.fixes)
    if settings := words.settings(report):
        page.title(phrase("serving.settings"))
        page.text(plain(settings), indent=2)
    if report.failure is not None:
        _failure(page, report, report.failure)
    if report.is_truncated:
        page.gap()
        page.text(phrase("serving.truncated"))
    return page.finish()


def _failure(page: TerminalPage, report: ServingReport, failure: ServingFailure) -> None:
    page.title(phrase("serving.failure", line=failure.line))
    page.text(plain(failure.text), indent=2)
    if failure.missing_bytes is not None:
        page.text(words.missing(failure.missing_bytes), indent=2)
    if failure.fixes:
        page.title(phrase("serving.fits"))
    _fixes(page, failure.fixes)
    page.gap()
    page.text(plain(phrase("serving.failure.more", name=report.source)))


def _fixes(page: TerminalPage, fixes: Sequence[Fix]) -> None:
    for number, fix in enumerate(fixes, 1):
        page.text(f"{number}. {plain(fix.title)}", indent=2)
        page.paste(plain(fix.change), indent=5)
        page.text(plain(fix.caveat), indent=5)
