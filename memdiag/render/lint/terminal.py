"""Patterns found in source code, for a terminal: place by place, then each rule with its fix once."""

from __future__ import annotations

from collections import Counter

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.finding import Finding
from memdiag.results.lint import LintReport
from memdiag.text import phrase, plain
from memdiag.units import format_count

LONGEST = 200  # characters of a line of source
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def render(report: LintReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    _verdict(page, report)
    for finding in report.findings:
        page.gap()
        page.spans(
            [(plain(finding.evidence[0].where), "bold"), ("  ", ""), (plain(finding.code), _STYLES[finding.severity])]
        )
        page.text(plain(finding.title, LONGEST), indent=4)
        page.spans([(plain(finding.evidence[0].value, max(page.width - 4, 20)), "dim")], indent=4)
        if finding.fixes[0].change:
            page.grid(
                "lw", [[(phrase("lint.report.label.fix"), "green"), plain(finding.fixes[0].change, LONGEST)]], indent=4
            )
    first = {finding.code: finding for finding in reversed(report.findings)}
    if first:
        page.title(phrase("lint.report.todo"))
        counts = Counter(finding.code for finding in report.findings)
        for code in sorted(first):
            _habit(page, first[code], counts[code])
    if report.notes:
        page.title(phrase("lint.report.unchecked"))
        for note in report.notes:
            page.text(plain(note.text, LONGEST), indent=2)
    return page.finish()


def _verdict(page: TerminalPage, report: LintReport) -> None:
    files, unchecked = report.num_files, len(report.unchecked)
    if not report.num_files:
        page.grid("lw", [[("NOT CHECKED", "yellow"), (phrase("lint.report.none"), "bold")]], indent=0)
    elif not report.findings and unchecked == report.num_files:
        page.grid(
            "lw", [[("NOT CHECKED", "red"), (phrase("lint.report.all-unchecked", files=files), "bold")]], indent=0
        )
    elif not report.findings and unchecked:
        said = phrase("lint.report.some-unchecked", unchecked=unchecked, files=files)
        page.grid("lw", [[("NOT CHECKED", "yellow"), (said, "bold")]], indent=0)
    elif not report.findings:
        page.grid("lw", [[("OK", "green"), (phrase("lint.report.clean", files=files), "bold")]], indent=0)
    else:
        found = Counter(finding.severity for finding in report.findings)
        words = ", ".join(
            f"{format_count(found[name])} {name}" for name in ("critical", "warning", "info") if found[name]
        )
        page.text(phrase("lint.report.found", places=len(report.findings), files=files, severities=words), "bold")
    if report.num_ignored:
        page.text(phrase("lint.report.silenced", places=report.num_ignored), "dim")


def _habit(page: TerminalPage, finding: Finding, count: int) -> None:
    fix = finding.fixes[0]
    page.gap()
    page.grid(
        "lw",
        [
            [
                (plain(finding.code), _STYLES[finding.severity]),
                (phrase("lint.report.fix", places=count, fix=fix.title), "bold"),
            ]
        ],
    )
    page.grid("lw", [[(phrase("lint.report.label.for"), "dim"), fix.applicability]], indent=9)
    page.grid("lw", [[(phrase("lint.report.label.but"), "dim"), fix.caveat]], indent=9)
    page.text(phrase("lint.report.silence", code=finding.code), "dim", indent=9)
