"""``memscope_dump_<time>.db`` of msmemscope (``leaks_dump`` before): the columns of its csv as one SQLite table."""

from __future__ import annotations

from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.sources.csv_table import columns_of
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.msmemscope_build import RECORD, build
from memdiag.sources.msmemscope_csv import WHAT
from memdiag.sources.msmemscope_rows import FIRST_COLUMNS, MemscopeRows
from memdiag.sources.sqlite_file import MAGIC, Database, open_database
from memdiag.text import phrase
from memdiag.trace.model import Trace

FORMAT = "msmemscope-db"

_TABLES = ("memscope_dump", "leaks_dump")


def sniff(head: bytes) -> bool:
    """Returns whether this is an SQLite database with msmemscope's table."""
    return head.startswith(MAGIC) and any(name.encode() in head for name in _TABLES)


def table_in(database: Database) -> str | None:
    """Returns the name of msmemscope's table in a database."""
    return next((name for name in _TABLES if database.has(name)), None)


def read(path: Path) -> Trace:
    """Reads a dump.

    Raises:
        RefusedFile: The dump is damaged, or has no such table.
    """
    with guard(path, WHAT, RECORD):
        rows = MemscopeRows(ByteLimit(path))
        with open_database(path) as database:
            name = table_in(database)
            columns = database.tables.get(name or "", ())
            places = {column: columns[place] for column, (place, _) in columns_of(list(columns)).items()}
            if name is None or not set(places) >= FIRST_COLUMNS:
                raise RefusedFile(phrase("errors.no-table.events", path=str(path)), phrase(RECORD))
            for row in database.rows(name, list(places.values())):
                rows.add(
                    {
                        column: "" if cell is None else str(cell).strip()
                        for column, cell in zip(places, row, strict=True)
                    }
                )
        return build(path, FORMAT, rows)
