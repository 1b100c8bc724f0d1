"""Pages of the documentation, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.manual import ManualPage, blocks
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage


def render(pages: Sequence[ManualPage], look: Look = PLAIN) -> str:
    """Returns the pages as text for a terminal of ``look.width`` columns."""
    out = TerminalPage(look)
    for number, page in enumerate(pages):
        if number:
            out.gap()
        out.grid("lw", [[(page.name, "cyan"), (page.title, "bold")]], indent=0)
        for block in blocks(page.text):
            if block.kind == "heading":
                out.title(block.text)
                continue
            out.gap()
            if block.kind == "code":
                for line in block.text.splitlines():
                    out.paste(line, indent=4)
            elif block.kind == "table":
                _table(out, block.text)
            elif block.kind == "item":
                mark, _, text = block.text.partition(" ")
                out.grid("lw", [[(mark, "green"), text.replace("**", "")]])
            else:
                out.text(block.text.replace("**", ""))
    return out.finish()


def _table(out: TerminalPage, text: str) -> None:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    columns = max(map(len, rows))
    table: list[list[Cell]] = [[*row, *[""] * (columns - len(row))] for row in rows]
    if any(cell for cell in table[0]):
        table[0] = [(str(cell), "bold") for cell in table[0]]
    widest = [max(len(str(row[column])) for row in rows if column < len(row)) for column in range(columns)]
    if sum(widest[:-1]) + 2 * columns + 20 > out.width:  # too wide side by side: one below the other
        for row in rows[1:]:
            out.text(row[0], "bold", indent=2)
            for cell in row[1:]:
                out.text(cell, indent=4)
        return
    out.grid("l" * (columns - 1) + "w", table)
