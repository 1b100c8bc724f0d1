"""Tensors, events and call stacks as CSV (RFC 4180): for spreadsheets, databases, awk.

Numbers are whole. Text from a trace may say anything: control characters are written as escapes, and a cell that a
spreadsheet would take for a formula gets an apostrophe before it.
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
    """Writes one file a table; returns them."""
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
    """Returns the file of one table: in a folder, that given if there is but one, else one beside it with the table's name in its own."""
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
    """Returns a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
