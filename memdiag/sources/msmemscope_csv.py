"""``memscope_dump_<time>.csv`` of msmemscope, and ``leaks_dump_<time>.csv`` of its predecessor msleaks."""

from __future__ import annotations

from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.sources.csv_table import CsvTable, columns_in
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.msmemscope_build import RECORD, build
from memdiag.sources.msmemscope_rows import FIRST_COLUMNS, MemscopeRows
from memdiag.sources.notes import Notes
from memdiag.sources.text_files import open_text
from memdiag.text import phrase
from memdiag.trace.model import Trace

FORMAT = "msmemscope-csv"

WHAT = "sources.msmemscope"
_WITHOUT_EVENTS = (({"base", "compare"}, "a comparison of sums"), ({"funcinfo"}, "calls of Python functions"))


def sniff(head: bytes) -> bool:
    """Returns whether the first line names msmemscope's columns, or those of its other tables."""
    columns = columns_in(head)
    return columns >= FIRST_COLUMNS or any(names <= columns for names, _ in _WITHOUT_EVENTS)


def read(path: Path) -> Trace:
    """Reads a dump.

    Raises:
        RefusedFile: The dump is damaged, or another table of msmemscope.
    """
    with guard(path, WHAT, RECORD):
        budget = ByteLimit(path)
        rows = MemscopeRows(budget)
        with open_text(path) as text:
            table = CsvTable(text, budget)
            if not set(table.columns) >= FIRST_COLUMNS:
                holds = next(
                    (holds for names, holds in _WITHOUT_EVENTS if names <= set(table.columns)), "something else"
                )
                raise RefusedFile(
                    phrase("errors.msmemscope", path=str(path), holds=str(holds)),
                    phrase("errors.msmemscope.hint", record=phrase(RECORD)),
                )
            places = {name: place for name, (place, _) in table.columns.items()}
            for row in table.rows():
                if "E" in (time := table.text(row, "timestamp")):
                    table.see_rounding(time, 1)
                rows.add({name: row[place].strip() for name, place in places.items() if place < len(row)})
        notes = Notes()
        table.check_times(path, notes)
        return build(path, FORMAT, rows, notes)
