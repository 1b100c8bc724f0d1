"""Details of simulated runs, drawn on a page for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from memdiag.render.support.page import TerminalPage
from memdiag.results.detail import Cell, DetailRow


def add_rows(page: TerminalPage, rows: Iterable[DetailRow]) -> None:
    """Adds rows to a page; adjacent rows of a table share their columns."""
    for (form, columns, indent), group in groupby(rows, lambda row: (row.form, row.columns, row.indent)):
        same = list(group)
        if form == "table":
            page.grid(columns, [row.cells for row in same], indent)
            continue
        for row in same:
            _add(page, row)


def _add(page: TerminalPage, row: DetailRow) -> None:
    if row.form == "gap":
        page.gap()
        return
    text, style = _cell(row.cells[0])
    if row.form == "title":
        page.title(text)
    elif row.form == "paste":
        page.paste(text, row.indent)
    else:
        page.text(text, style, row.indent)


def _cell(cell: Cell) -> tuple[str, str]:
    return (cell, "") if isinstance(cell, str) else cell
