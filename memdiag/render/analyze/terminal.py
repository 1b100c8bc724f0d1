"""The report for a terminal on one screen: verdict card, split, holders, findings, remedies, and the card again.

``--full`` prints everything (full.py). The number of rows in the lists follows from the height of a screen.
"""

from __future__ import annotations

from memdiag.render.analyze import would_fit
from memdiag.render.analyze.steps import full_step
from memdiag.render.support import card, words
from memdiag.render.support.amounts import percent
from memdiag.render.support.bar import bar, stacked_bar
from memdiag.render.support.line import StyledText, cells, cut, sized
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Row, TerminalPage
from memdiag.render.support.split import split
from memdiag.results.report import DeviceReport, Report
from memdiag.text import phrase, plain
from memdiag.units import format_bytes

MOST_LINES = 45
MOST_ROWS, LONGEST = 6, 400
_LEAST_REMEDIES = 2


def render(report: Report, look: Look = PLAIN) -> str:
    """Returns the report in at most ``MOST_LINES`` lines of ``look.width`` columns, with as many rows as fit."""
    pages = (_page(report, look, rows) for rows in range(MOST_ROWS, -1, -1))
    shortest = ""
    for shortest in pages:
        if shortest.count("\n") <= MOST_LINES:
            break
    return shortest


def draw_card(page: TerminalPage, report: Report, *, brief: bool = False) -> None:
    """Draws the verdict card.

    Args:
        brief: Only the headline in one line, the first remedy, and the prediction.
    """
    verdict = card.verdict_of(report)
    severity = words.severity_name(verdict.severity)
    happened = StyledText(plain(verdict.summary, LONGEST), "bold")
    if brief:
        happened = happened.shortened(page.width - cells(severity) - 4)
    page.columns("lw", [((severity, words.SEVERITY_STYLE[verdict.severity]), happened)], indent=0)
    rows = card.rows(verdict, brief=brief)
    wide = max((cells(row.label) for row in rows), default=0)
    for row in rows:
        page.columns("lw", [((sized(row.label, wide), "dim"), row.text)])
        if row.command:
            page.paste(row.command, indent=wide + 4)


def _page(report: Report, look: Look, most: int) -> str:
    page = TerminalPage(look)
    would_fit.draw(page, report)
    draw_card(page, report)
    page.gap()
    _source(page, report)
    busy = [device for device in report.devices if not words.is_idle(device)]
    number = card.verdict_of(report).device
    device = next((device for device in busy if device.device == number), None)
    if device is not None and most:
        _split(page, device)
        _holders(page, device, most)
        if len(busy) > 1:
            page.text(phrase("summary.others", device=device.device, count=len(busy) - 1), "dim", indent=2)
    if most:
        _findings(page, report, most)
        _remedies(page, report, most)
    page.gap()
    purpose, line = full_step(report)
    page.text(phrase("report.purpose", purpose=purpose), "dim")
    page.paste(plain(line), indent=2)
    page.gap()
    draw_card(page, report, brief=True)
    return page.finish()


def _source(page: TerminalPage, report: Report) -> None:
    page.text(
        " · ".join(fact.value for fact in words.source_facts(report) if fact.key in {"file", "kind", "holds"}), "dim"
    )


def _split(page: TerminalPage, device: DeviceReport) -> None:
    rows = split(device)
    if not rows:
        return
    page.title(phrase("summary.split"), words.moment(device))
    page.line(stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], page.width - 4), indent=2)
    line = StyledText()
    for row in rows:
        if not row.bytes:  # not in the bar
            continue
        part = StyledText(row.glyph, row.style).append(f" {row.name} {format_bytes(row.bytes)}")
        if line.spans and line.num_cells + part.num_cells > page.width - 5:
            page.line(line, indent=2)
            line = StyledText()
        line = line.append("   ").extend(part) if line.spans else part
    page.line(line, indent=2)


def _holders(page: TerminalPage, device: DeviceReport, most: int) -> None:
    kinds, sites = words.holders(device.by_category, "category"), device.top_sites or ()
    if not kinds and not sites:
        return
    page.title(phrase("summary.holders", moment=words.moment(device)))
    rows: list[Row] = [
        (format_bytes(kind.bytes), percent(kind.share), bar(kind.share or 0, 8, kind.style), kind.name)
        for kind in kinds[: min(most, 4)]
    ]
    page.columns("rrll", rows)
    room = max(page.width - 16, 10)
    places = [(format_bytes(site.bytes), cut(plain(site.name) or words.unknown(), room)) for site in sites]
    page.columns("rl", places[: min(most, 3)])


def _findings(page: TerminalPage, report: Report, most: int) -> None:
    found = words.in_order(report.findings)
    serious = sum(finding.severity != "info" for finding in found)
    page.title(
        phrase("summary.findings"),
        phrase("summary.problems", count=serious) if serious else phrase("summary.no-problem"),
    )
    rows: list[Row] = []
    for finding in found[:most]:
        title = StyledText(plain(finding.title, LONGEST)).shortened(max(page.width - 21, 10))
        severity = words.severity_name(finding.severity), words.SEVERITY_STYLE[finding.severity]
        rows.append(((plain(finding.code), "cyan"), severity, title))
    page.columns("lll", rows)
    _more(page, len(found) - most)


def _remedies(page: TerminalPage, report: Report, most: int) -> None:
    remedies = [*card.remedies(report)]
    if len(remedies) < _LEAST_REMEDIES:  # the card has it
        return
    page.title(phrase("verdict.todo"))
    shown = remedies[: max(min(most, 4), _LEAST_REMEDIES)]
    for number, (finding, fix) in enumerate(shown):
        title = plain(fix.title, LONGEST)
        if not number and card.verdict_of(report).remedy == fix.title:
            title = phrase("verdict.todo.first", fix=title)
        line = StyledText(f"{plain(finding.code)}  ", "cyan").append(title)
        page.line(line.shortened(page.width - 2), indent=2)
    _more(page, len(remedies) - len(shown))


def _more(page: TerminalPage, count: int) -> None:
    if count > 0:
        page.text(phrase("verdict.more", count=count), "dim", indent=2)
