"""The report on many ranks for a terminal: ranks out of memory, highest peaks, distribution, and all findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag import vocabulary
from memdiag.render.fleet import words
from memdiag.render.support import shared_cards
from memdiag.render.support.amounts import percent
from memdiag.render.support.line import cells as width
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.render.support.words import SEVERITY_STYLE, severity_name
from memdiag.text import joined, phrase, plain, shorten
from memdiag.units import format_bytes, format_count, format_ranges

if TYPE_CHECKING:
    from memdiag.results.fleet import Bin, FleetReport, Merged, Outlier, RankGroup, Tuned

_MOST_DIFFERENCES = 4
_MOST_PLACES = 2
_MOST_BROKEN = 10
_MOST_NOTES = 12
_HEAT_ROWS = 24
_BAR = 20
_WIDE = 76  # columns


def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns, with at most ``top`` rows in each list."""
    page = TerminalPage(look)
    label, style = words.state(report)
    page.grid("lw", [((label, style), (plain(joined(report.verdict)), "bold"))], indent=0)
    page.gap()
    page.grid("lw", [((name, "dim"), value) for name, value in words.facts(report)])
    if report.ranks:
        _distribution(page, report.distribution)
        _headroom(page, report, top)
        _groups(page, report.groups, top)
        _odd(page, report.outliers, top)
        _heat(page, report)
        _cards(page, report)
        _findings(page, report, top)
    if report.tuned is not None:
        _tuned(page, report.tuned)
    _broken(page, report)
    if report.notes:
        page.title(phrase("fleet.title.notes"))
        page.grid("lw", [("-", plain(note, 600)) for note in report.notes[:_MOST_NOTES]])
        if len(report.notes) > _MOST_NOTES:
            page.text(phrase("fleet.more.json", count=len(report.notes) - _MOST_NOTES), "dim", indent=4)
    if steps := words.next_steps(report):
        page.title(phrase("fleet.title.next"))
        for purpose, line in steps:
            page.text(phrase("fleet.next", purpose=purpose), indent=2)
            page.paste(line, 4)
    return page.finish()


def _cards(page: TerminalPage, report: FleetReport) -> None:
    for card in report.cards:
        page.title(phrase("fleet.title.card", card=plain(card.card, 60)), format_bytes(card.total_bytes))
        for line in shared_cards.processes(card):
            page.text(plain(line), indent=2)
        if rows := shared_cards.rows(card):
            head = shared_cards.head(card)
            page.columns("l" + "r" * (len(head) - 1), [[(cell, "bold") for cell in head], *rows])
        for line in shared_cards.kept(card):
            page.text(plain(line), "yellow", indent=2)


def _distribution(page: TerminalPage, bins: Sequence[Bin]) -> None:
    if not bins:
        return
    page.title(phrase("fleet.title.peaks"))
    most = max(len(each.ranks) for each in bins)
    room = max(page.width - 2 - 17 - 2 - 6 - 2 - _BAR - 2, 12)
    rows: list[Sequence[Cell]] = []
    for each in bins:
        number = len(each.ranks)
        if number:
            bar = "█" * -(-number * _BAR // most)
            low = phrase("fleet.and_up", bytes=format_bytes(each.low_bytes))
            rows.append((low, format_count(number), bar, (format_ranges(each.ranks, room), "dim")))
        elif rows[-1][0] != "…":
            rows.append(("…", "", "", ""))  # no rank is between
    page.grid("rrll", rows)


def _headroom(page: TerminalPage, report: FleetReport, top: int) -> None:
    rows = words.tight(report, top)
    page.title(phrase("fleet.title.headroom.least" if len(report.ranks) > len(rows) else "fleet.title.headroom"))
    if not rows:
        page.text(phrase("fleet.headroom.unknown"), indent=2)
        return
    wide = page.width >= _WIDE
    heads = ("rank", "left", *(["of"] if wide else []), "reserved", "allocated", "where")
    table: list[Sequence[Cell]] = [[phrase(f"fleet.head.{head}") for head in heads]]
    for row in rows:
        left = (words.left(row), "red" if row.is_out_of_memory else "")
        sizes = [*([row.capacity_bytes] if wide else []), row.peak_reserved_bytes, row.peak_allocated_bytes]
        table.append(
            (
                (str(row.rank), "bold"),
                left,
                *(phrase("fleet.value.unknown") if size is None else format_bytes(size) for size in sizes),
                (words.where(row), "dim"),
            )
        )
    page.grid("rrrrrw" if wide else "rrrrw", table)
    page.text(phrase("fleet.headroom.outside"), "dim", indent=2)


def _groups(page: TerminalPage, groups: Sequence[RankGroup], top: int) -> None:
    if len(groups) < 2 and not any(group.spread_explanation for group in groups):
        return
    page.title(phrase("fleet.title.groups"))
    room = max(page.width - 54, 14)
    rows: list[Sequence[Cell]] = [
        [phrase(f"fleet.head.{head}") for head in ("ranks", "number", "lowest", "middle", "highest")]
    ]
    rows += [
        (
            (format_ranges(group.ranks, room), "bold"),
            format_count(len(group.ranks)),
            *(format_bytes(size) for size in (group.low_bytes, group.median_bytes, group.high_bytes)),
        )
        for group in groups[:top]
    ]
    page.grid("lrrrr", rows)
    page.gap()
    for group in groups[:top]:
        is_usual = group.reference_group is None and len(group.ranks) > max(
            (len(other.ranks) for other in groups if other is not group), default=0
        )
        usual = phrase("fleet.usual") if is_usual and len(groups) > 1 else ""
        page.grid(
            "lw", [((format_ranges(group.ranks, 20), "bold"), joined((plain(group.label, words.LONGEST), usual), "; "))]
        )
        if group.explanation:
            middle = str(groups[group.reference_group or 0].median_rank)
            page.text(
                phrase("fleet.beside", rank=str(group.median_rank), other=middle, why=plain(group.explanation, 400)),
                "dim",
                indent=6,
            )
        if group.spread_explanation:
            page.text(plain(group.spread_explanation, 400), "dim", indent=6)
    if len(groups) > top:
        page.text(phrase("fleet.more.groups", count=len(groups) - top), "dim", indent=2)


def _odd(page: TerminalPage, odd: Sequence[Outlier], top: int) -> None:
    if not odd:
        return
    page.title(phrase("fleet.title.odd"))
    for each in odd[:top]:
        page.gap()
        amount = f"{words.signed(each.delta_bytes)} {vocabulary.name('curve', each.curve)}"
        who = words.odd_words(each)
        page.grid("lw", [((amount, "yellow" if each.delta_bytes > 0 else "cyan"), (who, "bold"))])
        page.text(plain(each.explanation, 400), indent=4)
        rows: list[Sequence[Cell]] = [
            (("", "dim"), (phrase("fleet.head.difference"), "dim"), (phrase("fleet.head.tensors"), "dim"))
        ]
        rows += [
            _cells(words.difference(difference), page.width - 40) for difference in each.differences[:_MOST_DIFFERENCES]
        ]
        page.grid("rlr", rows, indent=4)
        for differs in each.sites[:_MOST_PLACES]:
            page.text(
                phrase("fleet.made_at", bytes=words.signed(differs.delta_bytes), place=plain(differs.site, 100)),
                "dim",
                indent=6,
            )
    if len(odd) > top:
        page.text(phrase("fleet.more", count=len(odd) - top), "dim", indent=2)


def _cells(row: tuple[str, str, str], room: int) -> Sequence[Cell]:
    return row[0], shorten(row[1], room), (row[2], "dim")


def _heat(page: TerminalPage, report: FleetReport) -> None:
    heat = report.heatmap
    if heat is None or len(heat.ranks) < 2:
        return
    rows, low, high = words.heat_rows(report, heat, _HEAT_ROWS, page.width - 34)
    if not rows:
        return
    page.title(words.heat_title(report))
    stretch = max((page.width - 34) // max(len(rows[0].shades), 1), 1)
    stretch = min(stretch, 6)
    name = max(len(row.name) for row in rows)
    for row in rows:
        cells = "".join(shade * stretch for shade in row.shades)
        room = page.width - 2 - name - 1 - len(cells) - 2
        said = f"  {_cut(row.said, room)}" if row.said else ""
        page.spans([(f"{row.name:>{name}} ", "bold"), (cells, "cyan"), (said, "yellow")], indent=2)
    page.spans([(" " * (name + 1), ""), (f"{heat.columns[0]} … {heat.columns[-1]}", "dim")], indent=2)
    scale = f"{format_bytes(low)} {words.SHADES} {format_bytes(high)}"
    page.text(phrase("fleet.scale", scale=scale), "dim", indent=2)


def _cut(text: str, columns: int) -> str:
    """Returns as much of ``text`` as fits in the columns."""
    while width(text) > columns:
        text = f"{text[:-2]}…"
    return text


def _findings(page: TerminalPage, report: FleetReport, top: int) -> None:
    serious = [finding for finding in report.findings if finding.severity != "info"]
    page.title(phrase("fleet.title.findings"))
    if not serious:
        page.text(phrase("fleet.no_problem"), indent=2)
        return
    printed: set[str] = set()
    for finding in serious[:top]:
        _finding(page, finding, len(report.ranks), printed)
    rest = len(report.findings) - len(serious[:top])
    if rest:
        page.gap()
        page.text(phrase("fleet.more.findings", count=rest), "dim", indent=2)


def _finding(page: TerminalPage, finding: Merged, num_ranks: int, printed: set[str]) -> None:
    page.gap()
    number = len(finding.ranks)
    page.grid(
        "llw",
        [
            (
                (plain(finding.code), "cyan"),
                (severity_name(finding.severity), SEVERITY_STYLE.get(finding.severity, "")),
                (plain(finding.title, words.LONGEST), "bold"),
            )
        ],
    )
    if number == 1:
        who = phrase("fleet.rank", rank=str(finding.rank))
    elif number == num_ranks:
        who = phrase("fleet.ranks.all", count=number)
    else:
        who = phrase("fleet.ranks.share", ranks=format_ranges(finding.ranks, 40), share=percent(number / num_ranks))
    high, amount = format_bytes(finding.high_bytes), ""
    if finding.high_bytes:
        is_one = finding.low_bytes == finding.high_bytes or number == 1
        amount = high if is_one else phrase("fleet.to", first=format_bytes(finding.low_bytes), last=high)
    of = phrase("fleet.title_of", rank=str(finding.rank)) if number > 1 else ""
    page.text(joined((who, amount, of), "; "), indent=9)
    if finding.site:
        page.text(plain(finding.site, words.LONGEST), "dim", indent=9)
    for fix in finding.fixes[:1]:
        if fix.title not in printed:
            page.grid("lw", [((phrase("fleet.fix"), "green"), plain(fix.title, words.LONGEST))], indent=9)
            if fix.change and "\n" not in fix.change:
                page.paste(plain(fix.change), 14)
        printed.add(fix.title)


def _tuned(page: TerminalPage, tuned: Tuned) -> None:
    page.title(phrase("fleet.title.setting"))
    best = tuned.report.recommended
    searched = phrase("fleet.searched", ranks=format_ranges(tuned.ranks))
    if best is None:
        page.grid("lw", [((phrase("tune.keep"), "green"), (phrase("tune.keep.why", why=tuned.report.verdict), "bold"))])
        page.text(searched, "dim", indent=2)
        return
    page.grid("lw", [((phrase("tune.set"), "green"), (tuned.report.verdict, "bold"))])
    page.paste(plain(best.command), 4)
    page.text(searched, "dim", indent=2)
    for said in words.checked_words(tuned.checked) if tuned.checked is not None else ():
        page.text(said, indent=2)
    page.grid("lw", [("-", plain(caveat)) for caveat in best.caveats])


def _broken(page: TerminalPage, report: FleetReport) -> None:
    if not report.unreadable:
        return
    page.title(phrase("fleet.title.broken"))
    for broken in report.unreadable[:_MOST_BROKEN]:
        name = phrase("fleet.rank", rank=str(broken.rank)) if broken.rank is not None else "?"
        message = plain(broken.message, 400)
        shown = message if plain(broken.file) in message else f"{plain(broken.file)}: {message}"
        page.grid("lw", [((name, "red"), shown)])
        if broken.hint:
            page.text(plain(broken.hint, 300), "dim", indent=4)
    if len(report.unreadable) > _MOST_BROKEN:
        page.text(phrase("fleet.more.json", count=len(report.unreadable) - _MOST_BROKEN), "dim", indent=2)
