"""The verdict card as rows, for every form of a report, and the remedies of a report, each once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memdiag.render.support import words
from memdiag.results.finding import Finding, Fix
from memdiag.results.report import Report, Verdict
from memdiag.text import phrase, plain


class CardRow(NamedTuple):
    """One line of the card: its label, its text, and a line to paste, or ""."""

    label: str
    text: str
    command: str = ""


def verdict_of(report: Report) -> Verdict:
    """Returns the card of a report; without one, severity and headline."""
    return report.verdict or Verdict(words.worst(report.findings), words.headline(report))


def rows(verdict: Verdict, *, brief: bool = False) -> list[CardRow]:
    """Returns the rows below the first sentence of the card.

    Args:
        brief: Only the first remedy and its prediction.
    """
    remedy = (
        phrase("report.with-code", text=verdict.remedy, code=verdict.code)
        if verdict.remedy and verdict.code
        else verdict.remedy
    )
    every = (
        CardRow(phrase("verdict.label.lost"), plain(verdict.loss)),
        CardRow(phrase("verdict.label.first"), plain(remedy), plain(verdict.command)),
        CardRow(phrase("verdict.label.predicted"), plain(verdict.prediction)),
        CardRow(phrase("verdict.label.calibration"), plain(verdict.calibration)),
        CardRow(phrase("verdict.label.assumed"), plain(verdict.assumed)),
    )
    return [row for row in (every[1:3] if brief else every) if row.text]


def remedies(report: Report) -> Iterator[tuple[Finding, Fix]]:
    """Yields every remedy of warnings and critical findings once, the card's own first."""
    own = verdict_of(report)
    seen: set[str] = set()
    offers = [(finding, fix) for finding in words.in_order(report.findings) for fix in finding.fixes]
    first = [offer for offer in offers if own.remedy and (offer[1].title, offer[1].change) == (own.remedy, own.command)]
    for finding, fix in [*first[:1], *(offer for offer in offers if offer[0].severity != "info")]:
        key = fix.change or fix.title
        if key not in seen and fix.title not in seen:
            seen |= {key, fix.title}
            yield finding, fix
