"""What was checked for people, in a terminal: the verdict first, then each trace with what it is held against, and where it grew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.check_words import holder_words, title
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.text import plain
from memdiag.units import plural

if TYPE_CHECKING:
    from memdiag.gates.model import Checked, CheckReport

_LABELS = {"ok": ("PASSED", "bold green"), "failed": ("FAILED", "bold red"), "unknown": ("UNKNOWN", "bold yellow")}
_WORDS = {"ok": ("ok", "green"), "failed": ("over", "bold red"), "unknown": ("?", "bold yellow")}
_MOST_QUIET = 8  # traces without a failure that are shown one by one


def render(report: CheckReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = LightPage(look)
    page.grid("lw", [(_LABELS[report.status], (plain(report.verdict), "bold"))], indent=0)
    quiet = [each for each in report.checked if each.status == "ok"]
    for each in report.checked:
        if each.status != "ok" or len(quiet) <= _MOST_QUIET:
            _trace(page, each)
    if len(quiet) > _MOST_QUIET:
        page.gap()
        page.text(f"{plural(len(quiet), 'trace')} within limits: {', '.join(plain(each.key) for each in quiet)}", "dim")
    if report.missing:
        page.gap()
        page.text(f"In the baseline, but not given: {', '.join(plain(key) for key in report.missing)} (--update takes them out).", "yellow")
    _changes(page, report)
    if report.notes:
        page.gap()
    for note in report.notes:
        page.text(plain(note), "dim")
    return page.finish()


def _trace(page: LightPage, each: Checked) -> None:
    page.gap()
    device = "" if each.device is None else f", device {each.device}"
    page.text(f"{plain(each.key)}  {plain(each.path)}{device}", "bold")
    if each.error:
        page.text(plain(each.error), "yellow", indent=2)
    lines: list[Sequence[Cell]] = [(_WORDS[judgement.status], plain(judgement.reason)) for judgement in each.judgements]
    if lines:
        page.grid("lw", lines)
    if each.holders:
        page.text(f"{title(each)}:", "dim", indent=2)
        for holder in each.holders:
            page.text(holder_words(holder), indent=4)


def _changes(page: LightPage, report: CheckReport) -> None:
    if report.changes is None:
        return
    page.gap()
    page.text(f"{plain(report.baseline)}: {'written' if report.changes else 'unchanged'}", "bold")
    for line in report.changes:
        page.text(plain(line), indent=2)
