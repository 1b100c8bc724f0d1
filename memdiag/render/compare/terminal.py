"""A comparison of traces for a terminal: the verdict, then amounts, curves, call sites, and other differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.compare import rows
from memdiag.render.compare.curves import chart, how_aligned, legend
from memdiag.render.support.line import cells
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.text import joined, phrase, plain, sentence, shorten

if TYPE_CHECKING:
    from memdiag.results.compare import Comparison, NameRow, SiteRow

_FATES = {"new": "yellow", "worse": "bold red", "gone": "green", "better": "green"}
_LEAST, _SHORTEST = 24, 12  # columns for a call site, with enough room and without
_COLUMN = 13  # columns for an amount


def render(report: Comparison, look: Look = PLAIN) -> str:
    """Returns the comparison as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    for verdict in report.verdicts:
        page.text(plain(verdict), "bold")
    page.gap()
    page.grid("lw", [((side.letter, "bold cyan"), plain(side.path)) for side in report.sides])
    for side in report.sides:
        page.text(phrase("compare.side", letter=side.letter, text=rows.side_words(side)), "dim", indent=2)
    _amounts(page, report)
    if report.is_same:
        return page.finish()
    _curves(page, report)
    _places(page, report)
    _names(page, report)
    _differences(page, report)
    _findings(page, report)
    for note in report.notes:
        page.text(sentence(note), "dim")
    return page.finish()


def _amounts(page: TerminalPage, report: Comparison) -> None:
    page.title(phrase("compare.title.amounts", when=rows.when(report)))
    split = rows.split_rows(report)
    table_rows = [
        *rows.usage_rows(report),
        *((f"  {name}", values) for name, values, _ in split),
        *rows.count_rows(report),
    ]
    heads = rows.heads(report)
    for shown in _columns(page, report):
        lines: list[Sequence[Cell]] = [["", *((heads[number], "bold") for number in shown)]]
        lines += [[name, *(values[number] for number in shown)] for name, values in table_rows]
        page.grid("l" + "r" * len(shown), lines)
    if split:
        meanings = [phrase("simulate.means.part", name=name, means=meaning) for name, _, meaning in split]
        page.text(sentence(joined(meanings, "; ")), "dim", indent=2)


def _columns(page: TerminalPage, report: Comparison) -> list[list[int]]:
    """Returns the columns of bytes of each table: all of them, or the base with as many others as fit."""
    number = len(rows.heads(report))
    each = max((page.width - _LEAST) // _COLUMN - 1, 1)
    if len(report.sides) == 2 or number - 1 <= each:
        return [list(range(number))]
    return [[0, *range(first, min(first + each, number))] for first in range(1, number, each)]


def _curves(page: TerminalPage, report: Comparison) -> None:
    if report.curves is None:
        return
    letters = [side.letter for side in report.sides]
    for name, which in (("reserved", report.curves.reserved), ("allocated", report.curves.allocated)):
        lines = chart(report.curves, which, letters, page.width - 2)
        if lines:
            aligned = how_aligned(report.curves) if name == "reserved" else ""
            page.title(joined((phrase(f"compare.title.{name}"), aligned), ", "))
            for line in lines:
                page.spans(line, indent=2)
    page.spans([(" " * 10, ""), *legend(report)], indent=2)


def _places(page: TerminalPage, report: Comparison) -> None:
    page.title(phrase("compare.title.places", when=rows.when(report)))
    if report.sites is None:
        page.text(phrase("compare.places.unknown"), indent=2)
        return
    _table(
        page,
        report,
        report.sites,
        [rows.place_words(row) for row in report.sites[: report.top]],
        phrase("compare.head.place"),
    )
    if report.shared_end:
        page.text(phrase("compare.shared_end", end=plain(report.shared_end)), "dim", indent=2)


def _names(page: TerminalPage, report: Comparison) -> None:
    if report.names is None:
        return
    page.title(phrase("compare.title.names", when=rows.when(report)))
    _table(
        page,
        report,
        report.names,
        [plain(row.name) or phrase("offload.unnamed") for row in report.names[: report.top]],
        phrase("compare.head.name"),
    )


def _table(
    page: TerminalPage, report: Comparison, found: Sequence[SiteRow | NameRow], labels: Sequence[str], title: str
) -> None:
    """Adds a list of amounts, in several parts if the traces are too many for the width."""
    for bytes_shown in _columns(page, report):
        _part(page, report, found[: report.top], labels, title, bytes_shown)
    if len(found) > report.top:
        page.text(phrase("compare.more", count=len(found) - report.top), "dim", indent=2)


def _part(
    page: TerminalPage,
    report: Comparison,
    shown: Sequence[SiteRow | NameRow],
    labels: Sequence[str],
    title: str,
    bytes_shown: Sequence[int],
) -> None:
    """Adds a list with some of the columns of bytes, without other columns that do not fit."""
    heads = rows.heads(report)
    columns: list[tuple[str, list[str]]] = [
        (heads[number], [rows.byte_cells(row)[number] for row in shown]) for number in bytes_shown
    ]
    columns.append((phrase("compare.head.tensors"), [rows.tensor_cell(row) for row in shown]))
    if any(amount is not None and amount.mean_lifetime is not None for row in shown for amount in row.amounts):
        columns.append((rows.life_title(report), [rows.life_cell(row) for row in shown]))

    def width() -> int:
        return 2 + sum(max(cells(text) for text in (head, *values)) + 2 for head, values in columns)

    hidden = []
    while len(columns) > len(bytes_shown) and width() + _LEAST > page.width:
        hidden.append(columns.pop()[0])
    room = page.width - width()
    lines: list[Sequence[Cell]] = [[*((head, "dim") for head, _ in columns), (title, "dim")]]
    for number, label in enumerate(labels):
        values: list[Cell] = [(column[number], "bold" if "-" in head else "") for head, column in columns]
        lines.append([*values, shorten(label, max(room, _SHORTEST))])
    page.grid("r" * len(columns) + "l", lines)
    if hidden:
        page.text(phrase("compare.hidden", columns=joined(reversed(hidden), ", ")), "dim", indent=2)


def _differences(page: TerminalPage, report: Comparison) -> None:
    page.title(phrase("compare.title.settings"))
    if not report.differences:
        page.text(phrase("compare.settings.same"), indent=2)
        return
    each = max((page.width - 28) // len(report.sides) - 2, 12)
    found = rows.difference_rows(report, each)
    page.grid("l" * (len(report.sides) + 1), [["", *((side.letter, "bold") for side in report.sides)], *found])


def _findings(page: TerminalPage, report: Comparison) -> None:
    found = rows.finding_rows(report)
    alike = rows.num_alike(report)
    if not found and not alike:
        return
    page.title(phrase("compare.title.findings"))
    if found:
        page.grid(
            "llw", [((fate, _FATES[fate.key.rpartition(".")[2]]), (code, "cyan"), title) for fate, code, title in found]
        )
    if alike:
        page.text(phrase("compare.alike", count=alike), "dim", indent=2)
