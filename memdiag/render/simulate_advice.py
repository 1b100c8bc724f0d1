"""Whether pools by lifetime pay, below simulated runs: the verdict, what it rests on, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.findings import Finding
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.text import plain
from memdiag.units import format_bytes

_LONGEST = 300


def advice(page: LightPage, finding: Finding) -> None:
    """Adds a verdict to a page."""
    page.gap()
    page.text(f"{plain(finding.title, _LONGEST)}.", "bold", indent=2)
    rows: list[Sequence[Cell]] = [
        (format_bytes(item.value), f"{plain(item.what, _LONGEST)}{f' ({plain(item.where, _LONGEST)})' if item.where else ''}")
        for item in finding.evidence
        if isinstance(item.value, int)
    ]
    page.grid("rw", rows, indent=4)
    for fix in finding.fixes:
        applies = f" ({plain(fix.applicability, _LONGEST)})" if fix.applicability else ""
        page.text(f"{plain(fix.title, _LONGEST)}{applies}:", indent=2)
        page.paste(plain(fix.change, _LONGEST), 6)
        if fix.caveat:
            page.text(f"{plain(fix.caveat, _LONGEST)}.", "dim", indent=6)
