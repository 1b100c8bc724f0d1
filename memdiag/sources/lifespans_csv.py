"""Lists of lifetimes for static memory planners: ``id,lower,upper,size`` (minimalloc, idealloc, TelaMalloc).

A tensor is live in [lower, upper); the unit of time is the planner's. An older form uses ``start`` and ``end``, where
``end`` is the last moment of life instead of the first moment after it. Without a header, the columns have the order
above.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.csv_table import columns_in
from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial
from memdiag.sources.quantities import MOST_BYTES
from memdiag.sources.text_files import open_text
from memdiag.text import phrase
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice, events_from_lifetimes
from memdiag.trace.table import Array

FORMAT = "lifespans-csv"

_WHAT = "sources.lifespans-csv"
_HINT = "sources.lifespans-csv.hint"
_LOWER, _UPPER, _SIZE = ("lower", "begin", "start"), ("upper", "end"), ("size",)
_ID = ("id", "buffer", "name")
_MOST_TIME = 1 << 62
_LONGEST_LINE = 64 * 1024
_BYTES_PER_ROW = 48  # while the table grows


def sniff(head: bytes) -> bool:
    """Returns whether the first line names those columns, or is an id and three whole numbers."""
    columns = columns_in(head)
    if all(any(name in columns for name in names) for names in (_LOWER, _UPPER, _SIZE)):
        return True
    cells = head.split(b"\n", 1)[0].split(b",")
    return len(cells) == 4 and all(cell.strip().isdigit() for cell in cells[1:]) and cells[0].strip().isalnum()


def read(path: Path) -> Trace:
    """Reads a list of lifetimes.

    Raises:
        RefusedFile: The list is damaged or empty.
    """
    notes = Notes()
    with guard(path, _WHAT, _HINT):
        lower, upper, size = _columns(path)
        usable = (
            (size > 0)
            & (size <= MOST_BYTES)
            & (upper >= lower)
            & (np.abs(lower) < _MOST_TIME)
            & (np.abs(upper) < _MOST_TIME)
        )
        if not usable.all():
            notes.add("MD916", phrase("notes.rows.lifetimes", count=int((~usable).sum())))
            lower, upper, size = lower[usable], upper[usable], size[usable]
        if not len(size):
            raise RefusedFile(phrase("errors.no-lifetimes", path=str(path)), phrase(_HINT))
        lower, upper = lower - lower.min(), upper - lower.min()
        events = events_from_lifetimes(lower, upper, size)
        notes.add("MD910")
        notes.add("MD911")
        notes.add("MD913", phrase("notes.plan"))
        raw = RawDevice(
            device=0, action=events["action"], addr=events["addr"], size=events["size"], has_addresses=False
        )
        return build_partial(RawTrace(str(path), FORMAT, None, [raw]), hint=phrase(_HINT), complete=True, notes=notes)


@dataclass(frozen=True)
class ListedLifespans:
    """The rows of a list, unchanged and in the order of the file.

    Attributes:
        ids: Names of the tensors, or numbers from 0 if the file has none.
        lower, upper: Times from the file (int64).
        size: Bytes (int64).
        is_last: Whether ``upper`` is the last moment of life (the older form) instead of the first after it.
    """

    ids: tuple[str, ...]
    lower: Array
    upper: Array
    size: Array
    is_last: bool


def read_rows(path: Path) -> ListedLifespans:
    """Reads a list of lifetimes without building a trace: all rows are retained, with the times of the file.

    Raises:
        RefusedFile: The list is damaged or empty, or contains an impossible number.
    """
    with guard(path, _WHAT, _HINT):
        lower, after, size = _columns(path)
        with open_text(path) as text:
            rows = (row for row in csv.reader(text) if any(cell.strip() for cell in row))
            first = next(rows)
            header = [cell.strip().lower() for cell in first]
            is_last = _has_header(header) and _named(header)[1] == "end"
            place = next((header.index(name) for name in _ID if name in header), None) if _has_header(header) else 0
            body = rows if _has_header(header) else chain([first], rows)
            ids = tuple(str(k) if place is None else row[place].strip() for k, row in enumerate(body))
        if len(ids) != len(size):
            raise ValueError(f"{len(size)} rows of numbers, {len(ids)} names")
        wrong = np.flatnonzero(
            (size < 0) | (size > MOST_BYTES) | (after < lower) | (abs(lower) > _MOST_TIME) | (abs(after) > _MOST_TIME)
        )
        if len(wrong):
            raise ValueError(
                f"tensor {ids[wrong[0]]} has {size[wrong[0]]} bytes from {lower[wrong[0]]} until {after[wrong[0]]}"
            )
    return ListedLifespans(ids, lower, after - is_last, size, is_last)


def _named(header: list[str]) -> list[str | None]:
    """Returns the names by which a header gives lower, upper and size, or None if it has none."""
    return [next((name for name in names if name in header), None) for names in (_LOWER, _UPPER, _SIZE)]


def _has_header(header: list[str]) -> bool:
    return None not in _named(header)


def _columns(path: Path) -> tuple[Array, Array, Array]:
    """Returns lower, upper (exclusive) and size of each row."""
    most_rows = ByteLimit(path).left // _BYTES_PER_ROW
    with open_text(path) as text:
        first = text.readline(_LONGEST_LINE)
        header = [cell.strip().lower() for cell in next(csv.reader([first]), [])]
        named, with_header = _named(header), _has_header(header)
        places = [header.index(name) for name in named if name] if with_header else [1, 2, 3]
        row = next((line for line in text if line.strip()), "") if with_header else first
        if not row.strip():
            raise ValueError("no rows")
        lines = chain([row], islice(text, most_rows))
        table = np.loadtxt(lines, np.int64, comments=None, delimiter=",", usecols=places, ndmin=2, quotechar='"')
        if next(text, None) is not None:
            raise ValueError(f"more than {most_rows:,} rows")
    reversed_rows = np.flatnonzero(table[:, 1] < table[:, 0])
    if not with_header and len(reversed_rows):
        # Any table of four columns of numbers has the form of a list without a header.
        raise ValueError(f"row {reversed_rows[0] + 1} ends before it begins, and the file has no header")
    return table[:, 0], table[:, 1] + (1 if named[1] == "end" else 0), table[:, 2]
