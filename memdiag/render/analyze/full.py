"""The whole report for people, in a terminal: the verdict, then where memory was, where it went, what to do, and the verdict again.

Laid out for 80 columns; a wider terminal gets longer bars and lines. Lines to paste are never wrapped: a terminal
that is too narrow wraps them itself, and they still copy as one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memdiag import vocabulary
from memdiag.render.analyze import what_if, would_fit
from memdiag.render.analyze.steps import next_steps
from memdiag.render.analyze.terminal import draw_card
from memdiag.render.support import words
from memdiag.render.support.bar import bar, stacked_bar
from memdiag.render.support.chart import chart
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Page, indented, new_grid
from memdiag.render.support.split import fit, no_split, split, split_title
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.report import DeviceReport, Report, Site, Usage
from memdiag.text import phrase, plain, sentence, shorten
from memdiag.units import format_bytes

LONGEST, LONGEST_PLACE = 400, 90  # characters of a text, and of a place in the code
ROOMY = 80  # columns that the table of replays needs
LEAST_NAME = 12  # columns: less of a name says nothing
_Cell = TypeVar("_Cell")
MAX_EVIDENCE = 4  # of every finding but the worst


def render(report: Report, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = Page(look)
    would_fit.draw(page, report)
    draw_card(page, report)
    _source(page, report)
    idle = [device for device in report.devices if words.is_idle(device)]
    busy = [device for device in report.devices if device not in idle]
    for device in busy:
        _device(page, device, titled=len(report.devices) > 1)
    if idle:
        page.gap()
        page.text(phrase("report.idle", devices=", ".join(str(device.device) for device in idle)), "dim")
    _findings(page, words.in_order(report.findings), several=len(report.devices) > 1)
    _what_if(page, report)
    _notes(page, report)
    _next(page, report)
    page.gap()
    draw_card(page, report, brief=True)
    return page.finish()


def _source(page: Page, report: Report) -> None:
    page.gap()
    grid = new_grid("l", "w")
    for fact in words.source_facts(report):
        grid.add_row(Text(fact.label, style="dim"), Text(fact.value, overflow="fold"))
    page.add(indented(grid))


def _device(page: Page, device: DeviceReport, *, titled: bool) -> None:
    if titled:
        page.gap()
        head = f"── {phrase('report.device-title', device=str(device.device))} "
        page.add(Text(head + "─" * (page.width - cell_len(head)), style="bold"))
    page.title(phrase("report.timeline"))
    lines = chart(device, page.width - 2)
    for line in lines:
        page.add(Text("  ").append_text(line))
    if not lines:
        page.text(phrase("report.timeline.none"), indent=2)
    _usage(page, device)
    _split(page, device)
    _holders(page, device)


def _usage(page: Page, device: DeviceReport) -> None:
    columns = words.moments(device)
    page.title(phrase("report.usage"), words.counts(device) if page.wide else "")
    for shown in [[column] for column in columns] if page.narrow else [columns]:
        _usage_table(page, shown)
    if card := words.card(device):
        page.text(card, indent=2)
    if place := words.moment_place(device):
        page.text(phrase("report.moment-place", place=place), indent=2)
    if not page.wide:
        page.text(words.counts(device), "dim", indent=2)


def _usage_table(page: Page, columns: Sequence[tuple[str, str, Usage]]) -> None:
    """Adds the bytes at some moments, beside each other."""
    grid = new_grid("l", *("r" for _ in columns))
    grid.add_row("", *(Text(title, style="bold") for title, _, _ in columns))
    grid.add_row("", *(Text(where, style="dim") for _, where, _ in columns))
    for key in words.USAGE:
        name = vocabulary.name("curve", key)
        label = (
            Text(name)
            if page.narrow
            else Text(set_cell_size(name, 11)).append(vocabulary.meaning("curve", key), style="dim")
        )
        grid.add_row(label, *(Text(words.amount(getattr(usage, f"{key}_bytes"))) for _, _, usage in columns))
    grid.add_row(phrase("report.difference"), *(Text(words.amount(words.difference(usage))) for _, _, usage in columns))
    page.add(indented(grid))


def _split(page: Page, device: DeviceReport) -> None:
    rows = split(device)
    page.title(split_title(device), words.moment(device))
    if not rows:
        page.text(no_split(device), indent=2)
        return
    page.add(
        Text("  ").append_text(stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], page.width - 4))
    )
    grid = new_grid("l", "l", "r", "r", *_unless_narrow(page, "w"))
    for row in rows:
        amounts = (row.name, words.amount(row.bytes), words.percent(row.share))
        grid.add_row(Text(row.glyph, style=row.style), *amounts, *_unless_narrow(page, Text(row.meaning, style="dim")))
    page.add(indented(grid))
    if sentence := fit(device):
        page.text(sentence, indent=2)


def _unless_narrow(page: Page, *cells: _Cell) -> tuple[_Cell, ...]:
    """Returns the cells for which there is no room in a narrow terminal."""
    return () if page.narrow else cells


def _holders(page: Page, device: DeviceReport) -> None:
    page.title(phrase("summary.holders", moment=words.moment(device)))
    width = 24 if page.wide else 8
    page.add(indented(_bars(page, phrase("report.category"), words.holders(device.by_category, "category"), 24)))
    page.gap()
    page.add(
        indented(
            _bars(page, phrase("report.lifetime"), words.holders(device.by_lifetime, "lifetime"), width, explained=True)
        )
    )
    page.gap()
    _modules(page, device)
    _sites(page, device)


def _modules(page: Page, device: DeviceReport) -> None:
    if not device.by_module:
        return
    grid = new_grid("l", "r", "r", *_unless_narrow(page, "l"))
    grid.add_row(Text(phrase("report.module"), style="bold"))
    for module in device.by_module:
        name = _cut(words.module_words(module.name), page.width - 24 if page.narrow else min(48, page.width - 38))
        grid.add_row(
            name, format_bytes(module.bytes), words.percent(module.share), *_unless_narrow(page, bar(module.share, 8))
        )
    page.add(indented(grid))
    page.gap()


def _cut(text: str, width: int) -> Text:
    """Returns text of a file in at most ``width`` columns."""
    shown = Text(plain(text, width))
    shown.truncate(width, overflow="ellipsis")
    return shown


def _bars(page: Page, title: str, rows: list[words.Row], width: int, *, explained: bool = False) -> Table:
    """One list of amounts with bars of ``width`` columns, with what each means if ``explained``."""
    grid = new_grid("l", "r", "r", *_unless_narrow(page, "l", *(["w"] if explained else [])))
    grid.add_row(Text(title, style="bold"))
    for row in rows:
        drawn: list[RenderableType] = [
            bar(row.share or 0, width, row.style),
            *([Text(row.meaning, style="dim")] if explained else []),
        ]
        grid.add_row(
            set_cell_size(row.name, max(18, cell_len(row.name))),
            format_bytes(row.bytes),
            words.percent(row.share),
            *_unless_narrow(page, *drawn),
        )
    if not rows:
        grid.add_row(words.unknown())
    return grid


def _sites(page: Page, device: DeviceReport) -> None:
    if not device.top_sites:
        page.text(phrase("report.sites.unknown" if device.top_sites is None else "report.sites.none"), indent=2)
        return
    grid = new_grid("r", "r", "l")
    grid.add_row(*(Text(phrase(key), style="bold") for key in ("report.bytes", "report.num-tensors", "report.site")))
    for site in device.top_sites:
        grid.add_row(format_bytes(site.bytes), f"{site.num_tensors:,}", _place(site, page.width - 26))
    page.add(indented(grid))


def _place(site: Site, width: int) -> Text:
    """Returns a place and, as far as there is room, what its tensors are called."""
    place = _cut(plain(site.name) or words.unknown(), width)
    room = width - place.cell_len - 3
    if site.names and room >= LEAST_NAME and site.name not in site.names[0]:
        names = _cut(site.names[0], room)
        for name in site.names[1:]:
            if names.cell_len + 2 + cell_len(plain(name)) <= room:
                names.append(", " + plain(name))
        place.append(" · ", style="dim").append(names.plain, style="dim")
    return place


def _findings(page: Page, findings: list[Finding], *, several: bool) -> None:
    serious = [f for f in findings if f.severity != "info"]
    page.title(
        phrase("summary.findings"),
        phrase("summary.problems", count=len(serious)) if serious else phrase("summary.no-problem"),
    )
    told: set[Fix] = set()
    for finding in serious:
        _finding_head(page, finding, _title(finding, several=several))
        _evidence(page, finding.evidence, MAX_EVIDENCE if finding is not serious[0] else len(finding.evidence))
        for fix in finding.fixes:
            _fix(page, fix, again=fix in told)
            told.add(fix)
        _saving(page, finding)
    rest = [f for f in findings if f.severity == "info"]
    if not rest:
        return
    page.gap()
    page.text(phrase("report.also"), "bold", indent=2)
    grid = new_grid("l", "w")
    for finding in rest:
        title = Text(_title(finding, several=several), overflow="fold")
        if where := next((item.where for item in finding.evidence if item.where), ""):
            title.append(f" · {_where(where)}", style="dim")
        grid.add_row(Text(plain(finding.code), style="cyan"), title)
    page.add(indented(grid))


def _title(finding: Finding, *, several: bool) -> str:
    title = plain(finding.title, LONGEST)
    return (
        phrase("report.of-device", device=str(finding.device), text=title)
        if several and finding.device is not None
        else title
    )


def _where(where: str) -> str:
    return shorten(plain(where), LONGEST_PLACE)


def _finding_head(page: Page, finding: Finding, title: str) -> None:
    page.gap()
    head = new_grid("l", "w")
    label = f"{plain(finding.code)}  {words.severity_name(finding.severity)}"
    head.add_row(Text(label, style=words.SEVERITY_STYLE[finding.severity]), Text(title, style="bold", overflow="fold"))
    page.add(indented(head))


def _evidence(page: Page, evidence: Sequence[Evidence], at_most: int) -> None:
    grid = new_grid("r", "w")
    for item in evidence[:at_most]:
        what = Text(plain(item.what, LONGEST), overflow="fold")
        value = words.value_words(item)
        if isinstance(item.value, str):  # words, not a number: they may be long
            what.append(f": {value}")
            value = ""
        if item.where:
            what.append(f" · {_where(item.where)}", style="dim")
        grid.add_row(Text(plain(value, 24), style="bold"), what)
    page.add(indented(grid, 9))
    if len(evidence) > at_most:
        page.text(phrase("report.more-facts", count=len(evidence) - at_most), "dim", indent=11)


def _fix(page: Page, fix: Fix, *, again: bool) -> None:
    text = plain(fix.title, LONGEST)
    if again or fix.applicability:
        note = phrase("report.as-above") if again else plain(fix.applicability, LONGEST)
        text = phrase("report.with-note", text=text, note=note)
    _labelled(page, phrase("report.label.fix"), text, "green")
    if again:
        return
    if fix.change:
        page.paste(plain(fix.change), indent=16)
    if fix.caveat:
        _labelled(page, phrase("report.label.but"), plain(fix.caveat, LONGEST))


def _saving(page: Page, finding: Finding) -> None:
    if finding.saving:
        _labelled(page, phrase("report.label.saves"), words.saving_words(finding.saving))
        if finding.saving.repro:
            page.paste(plain(finding.saving.repro), indent=16)


def _what_if(page: Page, report: Report) -> None:
    if not report.what_if:
        return
    page.title(what_if.title())
    page.text(sentence(what_if.subtitle(report)), "dim", indent=2)
    if not what_if.rows(report):
        return
    if page.width < ROOMY:
        _pairs(page, ((row.saves, _brief(row)) for row in what_if.rows(report)))
        return
    grid = new_grid("r", "r", "l", "w")
    grid.add_row(*(Text(title, style="dim") for title in what_if.heads()))
    for row in what_if.rows(report):
        grid.add_row(
            Text(row.saves, style="bold"), row.peak, row.fate, Text(plain(row.change, LONGEST), overflow="fold")
        )
    page.add(indented(grid))


def _brief(row: what_if.Row) -> str:
    return phrase("report.what-if.brief", peak=row.peak, fate=row.fate, change=plain(row.change, LONGEST))


def _labelled(page: Page, label: str, text: str, style: str = "dim") -> None:
    grid = new_grid("l", "w")
    grid.add_row(Text(set_cell_size(label, 5), style=style), Text(text, overflow="fold"))
    page.add(indented(grid, 9))


def _notes(page: Page, report: Report) -> None:
    if not report.notes:
        return
    page.title(phrase("report.notes"))
    _pairs(page, ((plain(note.code), plain(note.text)) for note in report.notes))


def _pairs(page: Page, pairs: Iterable[tuple[str, str]]) -> None:
    grid = new_grid("l", "w")
    for name, text in pairs:
        grid.add_row(Text(name, style="dim"), Text(text, overflow="fold"))
    page.add(indented(grid))


def _next(page: Page, report: Report) -> None:
    page.title(phrase("report.next"))
    for purpose, line in next_steps(report):
        page.text(phrase("report.purpose", purpose=purpose), indent=2)
        page.paste(plain(line), indent=4)
