"""The whole report for a terminal: the verdict, memory over time, its owners, remedies, and the verdict again.

Laid out for 80 columns; a wider terminal gets longer bars and lines. Lines to paste are never wrapped: a terminal
that is too narrow wraps them itself, and they still copy as one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memdiag import vocabulary
from memdiag.render.analyze import owners, what_if, would_fit
from memdiag.render.analyze.steps import next_steps
from memdiag.render.analyze.terminal import draw_card
from memdiag.render.support import words
from memdiag.render.support.amounts import AmountRow, percent
from memdiag.render.support.bar import bar, stacked_bar
from memdiag.render.support.chart import chart
from memdiag.render.support.line import StyledText, cells, cut, sized
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, Row, TerminalPage
from memdiag.render.support.split import fit, no_split, split, split_title
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.report import DeviceReport, Report, Usage
from memdiag.results.sites import Site
from memdiag.text import phrase, plain, sentence, shorten
from memdiag.units import format_bytes

LONGEST, LONGEST_PLACE = 400, 90  # characters of a text, and of a call site
ROOMY = 80  # columns that the table of replays needs
LEAST_NAME = 12  # columns: a shorter name is useless
MAX_EVIDENCE = 4  # of every finding but the worst


def render(report: Report, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
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
    for table in owners.of_host(report):
        _owners(page, table)
    _findings(page, words.in_order(report.findings), several=len(report.devices) > 1)
    _what_if(page, report)
    _notes(page, report)
    _next(page, report)
    page.gap()
    draw_card(page, report, brief=True)
    return page.finish()


def _source(page: TerminalPage, report: Report) -> None:
    page.gap()
    _pairs(page, ((fact.label, fact.value) for fact in words.source_facts(report)))


def _device(page: TerminalPage, device: DeviceReport, *, titled: bool) -> None:
    if titled:
        page.gap()
        head = f"── {phrase('report.device-title', device=str(device.device))} "
        page.text(head + "─" * (page.width - cells(head)), "bold")
    page.title(phrase("report.timeline"))
    lines = chart(device, page.width - 2)
    for line in lines:
        page.line(StyledText("  ").extend(line))
    if not lines:
        page.text(phrase("report.timeline.none"), indent=2)
    _usage(page, device)
    _split(page, device)
    _holders(page, device)


def _usage(page: TerminalPage, device: DeviceReport) -> None:
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


def _usage_table(page: TerminalPage, columns: Sequence[tuple[str, str, Usage]]) -> None:
    """Adds a table of the bytes at several moments."""
    rows: list[Row] = [
        ["", *((title, "bold") for title, _, _ in columns)],
        ["", *((where, "dim") for _, where, _ in columns)],
    ]
    for key in words.USAGE:
        name = vocabulary.name("curve", key)
        label = StyledText(name if page.narrow else sized(name, 11))
        if not page.narrow:
            label.append(vocabulary.meaning("curve", key), "dim")
        rows.append([label, *(words.amount(getattr(usage, f"{key}_bytes")) for _, _, usage in columns)])
    rows.append([phrase("report.difference"), *(words.amount(words.difference(usage)) for _, _, usage in columns)])
    page.columns("l" + "r" * len(columns), rows)


def _split(page: TerminalPage, device: DeviceReport) -> None:
    rows = split(device)
    page.title(split_title(device), words.moment(device))
    if not rows:
        page.text(no_split(device), indent=2)
        return
    page.line(stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], page.width - 4), indent=2)
    table: list[Row] = []
    for row in rows:
        amounts = (row.name, words.amount(row.bytes), percent(row.share))
        table.append([(row.glyph, row.style), *amounts, *_unless_narrow(page, (row.meaning, "dim"))])
    page.columns("llrr" if page.narrow else "llrrw", table)
    if sentence := fit(device):
        page.text(sentence, indent=2)


def _unless_narrow(page: TerminalPage, *cells: Cell | StyledText) -> tuple[Cell | StyledText, ...]:
    """Returns the cells that are omitted in a narrow terminal."""
    return () if page.narrow else cells


def _holders(page: TerminalPage, device: DeviceReport) -> None:
    page.title(phrase("summary.holders", moment=words.moment(device)))
    width = 24 if page.wide else 8
    _bars(page, phrase("report.category"), words.holders(device.by_category, "category"), 24)
    page.gap()
    _bars(page, phrase("report.lifetime"), words.holders(device.by_lifetime, "lifetime"), width, explained=True)
    page.gap()
    _modules(page, device)
    _sites(page, device)
    for table in owners.of_device(device):
        _owners(page, table)


def _owners(page: TerminalPage, table: owners.OwnerTable) -> None:
    page.title(table.title)
    if table.lead:
        page.text(table.lead, "dim", indent=2)
    rows: list[Row] = [[(title, "bold") for title in table.head]]
    rows += [(*row[:-1], _cut(row[-1], page.width - 26)) for row in table.rows]
    page.columns("r" * (len(table.head) - 1) + "l", rows)


def _modules(page: TerminalPage, device: DeviceReport) -> None:
    if not device.by_module:
        return
    rows: list[Row] = [[(phrase("report.module"), "bold")]]
    for module in device.by_module:
        name = _cut(words.module_words(module.name), page.width - 24 if page.narrow else min(48, page.width - 38))
        rows.append(
            [
                name,
                format_bytes(module.bytes),
                percent(module.fraction),
                *_unless_narrow(page, bar(module.fraction, 8)),
            ]
        )
    page.columns("lrr" if page.narrow else "lrrl", rows)
    page.gap()


def _cut(text: str, width: int) -> str:
    """Returns text of a file in at most ``width`` columns."""
    return cut(plain(text, width), width)


def _bars(page: TerminalPage, title: str, rows: list[AmountRow], width: int, *, explained: bool = False) -> None:
    """Adds a list of amounts with bars of ``width`` columns, with their meanings if ``explained``."""
    table: list[Row] = [[(title, "bold")]]
    for row in rows:
        name = sized(row.name, max(18, cells(row.name)))
        meaning = [(row.meaning, "dim")] if explained else []
        drawn = _unless_narrow(page, bar(row.share or 0, width, row.style), *meaning)
        table.append([name, format_bytes(row.bytes), percent(row.share), *drawn])
    if not rows:
        table.append([words.unknown()])
    page.columns("lrr" if page.narrow else "lrrlw" if explained else "lrrl", table)


def _sites(page: TerminalPage, device: DeviceReport) -> None:
    if not device.top_sites:
        page.text(phrase("report.sites.unknown" if device.top_sites is None else "report.sites.none"), indent=2)
        return
    rows: list[Row] = [[(phrase(key), "bold") for key in ("report.bytes", "report.num-tensors", "report.site")]]
    rows += [
        (format_bytes(site.bytes), f"{site.num_tensors:,}", _place(site, page.width - 26)) for site in device.top_sites
    ]
    page.columns("rrl", rows)


def _place(site: Site, width: int) -> StyledText:
    """Returns a call site and, if there is room, the names of its tensors."""
    place = StyledText(_cut(plain(site.name) or words.unknown(), width))
    room = width - place.num_cells - 3
    if site.tensor_names and room >= LEAST_NAME and site.name not in site.tensor_names[0]:
        names = _cut(site.tensor_names[0], room)
        for name in site.tensor_names[1:]:
            if cells(names) + 2 + cells(plain(name)) <= room:
                names += ", " + plain(name)
        place.append(" · ", "dim").append(names, "dim")
    return place


def _findings(page: TerminalPage, findings: list[Finding], *, several: bool) -> None:
    serious = [f for f in findings if f.severity != "info"]
    page.title(
        phrase("summary.findings"),
        phrase("summary.problems", count=len(serious)) if serious else phrase("summary.no-problem"),
    )
    printed: set[Fix] = set()
    for finding in serious:
        _finding_head(page, finding, _title(finding, several=several))
        _evidence(page, finding.evidence, MAX_EVIDENCE if finding is not serious[0] else len(finding.evidence))
        for fix in finding.fixes:
            _fix(page, fix, again=fix in printed)
            printed.add(fix)
        _saving(page, finding)
    rest = [f for f in findings if f.severity == "info"]
    if not rest:
        return
    page.gap()
    page.text(phrase("report.also"), "bold", indent=2)
    rows: list[Row] = []
    for finding in rest:
        title = StyledText(_title(finding, several=several))
        if where := next((item.where for item in finding.evidence if item.where), ""):
            title.append(f" · {_where(where)}", "dim")
        rows.append(((plain(finding.code), "cyan"), title))
    page.columns("lw", rows)


def _title(finding: Finding, *, several: bool) -> str:
    title = plain(finding.title, LONGEST)
    return (
        phrase("report.of-device", device=str(finding.device), text=title)
        if several and finding.device is not None
        else title
    )


def _where(where: str) -> str:
    return shorten(plain(where), LONGEST_PLACE)


def _finding_head(page: TerminalPage, finding: Finding, title: str) -> None:
    page.gap()
    label = f"{plain(finding.code)}  {words.severity_name(finding.severity)}"
    page.columns("lw", [((label, words.SEVERITY_STYLE[finding.severity]), (title, "bold"))])


def _evidence(page: TerminalPage, evidence: Sequence[Evidence], at_most: int) -> None:
    rows: list[Row] = []
    for item in evidence[:at_most]:
        what = StyledText(plain(item.what, LONGEST))
        value = words.value_words(item)
        if isinstance(item.value, str):  # words, not a number: they may be long
            what.append(f": {value}")
            value = ""
        if item.where:
            what.append(f" · {_where(item.where)}", "dim")
        rows.append(((plain(value, 24), "bold"), what))
    page.columns("rw", rows, indent=9)
    if len(evidence) > at_most:
        page.text(phrase("report.more-facts", count=len(evidence) - at_most), "dim", indent=11)


def _fix(page: TerminalPage, fix: Fix, *, again: bool) -> None:
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


def _saving(page: TerminalPage, finding: Finding) -> None:
    if finding.saving:
        _labelled(page, phrase("report.label.saves"), words.saving_words(finding.saving))
        if finding.saving.repro:
            page.paste(plain(finding.saving.repro), indent=16)


def _what_if(page: TerminalPage, report: Report) -> None:
    if not report.what_if:
        return
    page.title(what_if.title())
    page.text(sentence(what_if.subtitle(report)), "dim", indent=2)
    if not what_if.rows(report):
        return
    if page.width < ROOMY:
        _pairs(page, ((row.saves, _brief(row)) for row in what_if.rows(report)))
        return
    rows: list[Row] = [[(title, "dim") for title in what_if.heads()]]
    rows += [((row.saves, "bold"), row.peak, row.fate, plain(row.change, LONGEST)) for row in what_if.rows(report)]
    page.columns("rrlw", rows)


def _brief(row: what_if.ReplayRow) -> str:
    return phrase("report.what-if.brief", peak=row.peak, fate=row.fate, change=plain(row.change, LONGEST))


def _labelled(page: TerminalPage, label: str, text: str, style: str = "dim") -> None:
    page.columns("lw", [((sized(label, 5), style), text)], indent=9)


def _notes(page: TerminalPage, report: Report) -> None:
    if not report.notes:
        return
    page.title(phrase("report.notes"))
    _pairs(page, ((plain(note.code), plain(note.text)) for note in report.notes))


def _pairs(page: TerminalPage, pairs: Iterable[tuple[str, str]]) -> None:
    page.columns("lw", [((name, "dim"), text) for name, text in pairs])


def _next(page: TerminalPage, report: Report) -> None:
    page.title(phrase("report.next"))
    for purpose, line in next_steps(report):
        page.text(phrase("report.purpose", purpose=purpose), indent=2)
        page.paste(plain(line), indent=4)
