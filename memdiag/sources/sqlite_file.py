"""Opens untrusted SQLite databases: read only, without their code or journal, and with work limited by the file size.

A database can contain views, triggers, virtual tables and computed columns, all of which evaluate expressions when they
are read. Only plain tables are read here, by name, through an authorizer that rejects everything else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memdiag.sources.files import GZIP_MAGIC
from memdiag.units import MIB

MAGIC = b"SQLite format 3\x00"

_STEPS = 10_000  # SQLite virtual machine steps between two checks of the limit
_LARGEST_CELL = MIB
# Reading a row takes some tens of steps and some tens of bytes; a corrupt page tree can take any number of steps.
_ALLOWANCE = 20_000_000
_STEPS_PER_BYTE = 20


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Opens a database for reading.

    Raises:
        ValueError: The file is compressed.
        sqlite3.Error: It is damaged.
    """
    with path.open("rb") as file:
        if file.read(2) == GZIP_MAGIC:
            raise ValueError("a database has to be decompressed first")
    uri = path.resolve().as_uri() + "?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        yield from _opened(connection, path)
    except MemoryError:  # sqlite's own limits are far below the memory of a machine: a number in the file requests it
        raise ValueError("it asks for absurd room") from None
    finally:
        connection.close()


def _opened(connection: sqlite3.Connection, path: Path) -> Iterator[Database]:
    connection.text_factory = lambda text: text.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_CELL)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in (
        "trusted_schema=OFF",
        "query_only=ON",
        "cell_size_check=ON",
        "mmap_size=0",
        "cache_size=-8192",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
    left = (_ALLOWANCE + _STEPS_PER_BYTE * path.stat().st_size) // _STEPS

    def step() -> int:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(step, _STEPS)
    yield Database(connection)


class Database:
    """The plain tables of an open database.

    Attributes:
        tables: Column names of each table, as spelled in the database.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.tables: dict[str, tuple[str, ...]] = {}
        rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchmany(10_000)
        for name, sql in rows:
            if isinstance(name, str) and not str(sql).upper().startswith("CREATE VIRTUAL"):
                columns = connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchmany(2_000)
                # without hidden and generated columns
                self.tables[name] = tuple(str(column[1]) for column in columns if column[6] == 0)
        connection.set_authorizer(self._allow)

    def _allow(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,  # noqa: ARG002
        trigger: str | None,  # noqa: ARG002
    ) -> int:
        plain = action == sqlite3.SQLITE_READ and first in self.tables and (second in self.tables[first] or not second)
        return sqlite3.SQLITE_OK if plain or action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY

    def has(self, table: str, columns: Sequence[str] = ()) -> bool:
        """Returns whether there is a table with these columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yields the given columns of each row, with None for columns that the table lacks.

        Raises:
            sqlite3.Error: The table is damaged, or reading it takes far too long.
        """
        have = set(self.tables[table])
        wanted = ", ".join(_quoted(name) if name in have else "NULL" for name in columns)
        # Names from the schema, quoted.
        cursor = self._connection.execute(f"SELECT {wanted} FROM {_quoted(table)}")  # noqa: S608
        # Not "yield from": an unfinished generator would close the cursor on garbage collection, after the connection.
        while (row := cursor.fetchone()) is not None:
            yield row


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
