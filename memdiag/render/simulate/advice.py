"""The finding on lifetime-segregated pools below simulated runs: verdict, evidence and fixes."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.finding import Finding
from memdiag.text import phrase, plain, sentence
from memdiag.units import format_bytes

_LONGEST = 300


def advice(page: TerminalPage, finding: Finding) -> None:
    """Adds a verdict to a page."""
    page.gap()
    page.text(sentence(plain(finding.title, _LONGEST)), "bold", indent=2)
    rows: list[Sequence[Cell]] = [
        (format_bytes(item.value), _with(plain(item.what, _LONGEST), item.where))
        for item in finding.evidence
        if isinstance(item.value, int)
    ]
    page.grid("rw", rows, indent=4)
    for fix in finding.fixes:
        page.text(phrase("simulate.advice.fix", fix=_with(plain(fix.title, _LONGEST), fix.applicability)), indent=2)
        page.paste(plain(fix.change, _LONGEST), 6)
        if fix.caveat:
            page.text(sentence(plain(fix.caveat, _LONGEST)), "dim", indent=6)


def _with(text: str, details: str) -> str:
    return phrase("simulate.advice.with", text=text, details=plain(details, _LONGEST)) if details else text
