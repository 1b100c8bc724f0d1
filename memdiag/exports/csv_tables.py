"""Tensors, events and call stacks as CSV (RFC 4180): for spreadsheets, databases, awk.

Numbers are whole. Text from a trace is untrusted: control characters are escaped, and a cell that a spreadsheet would
interpret as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from memdiag.exports.model import Wanted, whole_file
from memdiag.exports.tables import TablePart, Tables, Text
from memdiag.trace.model import Trace

SUFFIXES = (".csv", ".csv.gz")
_WIDE = "\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
_FORMULA = ("=", "+", "-", "@", *_WIDE)


def write(trace: Trace, path: Path, wanted: Wanted) -> list[Path]:
    """Writes one file per table; returns them."""
    tables = Tables(trace, wanted)
    files = {table: file_of(path, table, wanted.tables, ".csv") for table in wanted.tables}
    for table, file in files.items():
        with whole_file(file) as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)
            rows = csv.writer(text, lineterminator="\r\n")
            for number, part in enumerate(tables.parts(table)):
                if not number:
                    rows.writerow(part.columns)
                rows.writerows(zip(*_cells(part), strict=True))
            text.detach()
    return list(files.values())


def file_of(path: Path, table: str, tables: tuple[str, ...], suffix: str) -> Path:
    """Returns the file of one table.

    It is in a folder, or the given file if there is only one table, or a file next to it with the table's name
    appended.
    """
    if path.is_dir() or not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
        return path / f"{table}{suffix}"
    if len(tables) == 1:
        return path
    stem, _, rest = path.name.partition(suffix)
    return path.with_name(f"{stem}-{table}{suffix}{rest}")


def _cells(part: TablePart) -> list[list[object]]:
    found: list[list[object]] = []
    for column in part.columns.values():
        if isinstance(column, Text):
            codes = column.codes.tolist()
            safe_words = {code: safe(column.words[code]) for code in set(codes)}
            found.append([safe_words[code] for code in codes])
        else:
            found.append((column.astype("int8") if column.dtype == "bool" else column).tolist())
    return found


def safe(text: str) -> str:
    """Returns a cell that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
