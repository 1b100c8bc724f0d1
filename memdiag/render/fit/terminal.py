"""The result of ``memdiag fit`` for a terminal: a sentence for each device, then a table coloured by headroom."""

from __future__ import annotations

from memdiag.render.fit import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.fit import FitReport
from memdiag.text import phrase, plain, sentence


def render(report: FitReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    for said in words.verdicts(report):
        page.text(said, "bold")
    for said in words.closest(report):
        page.text(said)
    page.gap()
    head: list[Cell] = [axis.name for axis in report.axes]
    head += [phrase("fit.head.allocated"), phrase("fit.head.reserved")]
    head += [device.name for device in report.devices]
    rows = [head, *(_row(row) for row in words.table_rows(report))]
    page.columns("r" * len(report.axes) + "rr" + "l" * len(report.devices), rows, indent=0)
    if (found := words.front(report)) is not None:
        titles, points = found
        page.title(phrase("fit.title.front"))
        front: list[list[Cell]] = [[*titles]]
        front += [[*point] for point in points]
        page.columns("l" + "r" * (len(titles) - 2) + "l", front, indent=0)
    if any(cell.error for cell in report.cells):
        page.title(phrase("fit.errors"))
        page.grid(
            "lw",
            [
                (report.label(cell.values), plain(f"{cell.error} ({cell.output})"))
                for cell in report.cells
                if cell.error
            ],
        )
    page.gap()
    page.text(words.runs(report), "dim")
    page.grid("lw", [("-", sentence(note)) for note in report.notes], indent=0)
    for said in words.next_steps(report):
        page.paste(said, 0)
    return page.finish()


def _row(row: words.TableRow) -> list[Cell]:
    outcomes = [(words.outcome(on), words.STYLES.get(on.outcome, "")) for on in row.cell.on]
    return [*row.values, *words.peaks(row.cell), *outcomes]
