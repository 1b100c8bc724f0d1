"""The result of a check for a terminal: the verdict, then each trace with its limits, and where it grew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.check.words import holder_words, title
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.text import phrase, plain

if TYPE_CHECKING:
    from memdiag.results.check import CheckReport, DeviceCheck

_STYLES = {"ok": "green", "failed": "red", "unknown": "yellow"}
_MOST_QUIET = 8  # number of passing traces that are listed individually


def render(report: CheckReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.grid(
        "lw",
        [((phrase(f"check.label.{report.status}"), f"bold {_STYLES[report.status]}"), (plain(report.verdict), "bold"))],
        indent=0,
    )
    quiet = [each for each in report.traces if each.status == "ok"]
    for each in report.traces:
        if each.status != "ok" or len(quiet) <= _MOST_QUIET:
            _trace(page, each)
    if len(quiet) > _MOST_QUIET:
        page.gap()
        page.text(phrase("check.quiet", count=len(quiet), keys=", ".join(plain(each.key) for each in quiet)), "dim")
    if report.missing:
        page.gap()
        page.text(phrase("check.missing", keys=", ".join(plain(key) for key in report.missing)), "yellow")
    _changes(page, report)
    if report.notes:
        page.gap()
    for note in report.notes:
        page.text(plain(note), "dim")
    return page.finish()


def _trace(page: TerminalPage, each: DeviceCheck) -> None:
    page.gap()
    path = plain(each.path)
    place = path if each.device is None else phrase("check.device", path=path, device=str(each.device))
    page.text(f"{plain(each.key)}  {place}", "bold")
    if each.error:
        page.text(plain(each.error), "yellow", indent=2)
    lines: list[Sequence[Cell]] = []
    for judgement in each.checks:
        style = _STYLES[judgement.status] if judgement.status == "ok" else f"bold {_STYLES[judgement.status]}"
        lines.append(((phrase(f"check.word.{judgement.status}"), style), plain(judgement.reason)))
    if lines:
        page.grid("lw", lines)
    if each.sites:
        page.text(phrase("check.title", title=title(each)), "dim", indent=2)
        for holder in each.sites:
            page.text(holder_words(holder), indent=4)


def _changes(page: TerminalPage, report: CheckReport) -> None:
    if report.changes is None:
        return
    page.gap()
    page.text(phrase("check.written" if report.changes else "check.unchanged", file=plain(report.baseline)), "bold")
    for line in report.changes:
        page.text(plain(line), indent=2)
