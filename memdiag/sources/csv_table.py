"""Reads csv files by column name: profilers add, drop and rename columns, and write units into the header.

Names are compared in lower case and without the unit: ``Total Reserved(MB)`` is the column ``total reserved`` in
``mb``. Cells are stripped: Ascend ends its times with a tab, so that spreadsheets keep all digits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from memdiag.errors import RefusedFile
from memdiag.sources.growing import ByteLimit
from memdiag.sources.notes import Notes
from memdiag.sources.quantities import BYTE_UNITS, TIME_UNITS, rounding_of, scaled
from memdiag.text import phrase

_UNIT = re.compile(r"(.*?)\s*\(([A-Za-z]+)\)\Z", re.DOTALL)
_HEADER_LIMIT = 64 * 1024
_FINE_NS, _COARSE_NS = 1000, 1_000_000  # rounding that changes no order; and that leaves none
_ROW = 16  # budget bytes charged for every row, even an ignored one, to limit the work


def columns_of(header: list[str]) -> dict[str, tuple[int, str]]:
    """Returns index and unit ("" for none) of each column of a header; the first of duplicate names wins."""
    columns: dict[str, tuple[int, str]] = {}
    for place, cell in enumerate(header):
        text = cell.strip().lower()
        match = _UNIT.match(text)
        name, unit = match.groups() if match and match.group(2) in BYTE_UNITS | TIME_UNITS else (text, "")
        columns.setdefault(name, (place, unit))
    return columns


def columns_in(head: bytes) -> set[str]:
    """Returns the column names of a csv file that begins with ``head``; empty if it does not look like one."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0][:_HEADER_LIMIT]
    try:
        row = next(csv.reader([line.decode()]), [])
    except (UnicodeError, csv.Error):
        return set()
    return set(columns_of(row)) if len(row) > 1 else set()


class CsvTable:
    """Rows of a csv file with a header.

    Attributes:
        columns: Index and unit of each column.
        rounding_ns: Unit to which the times are rounded, in nanoseconds; 0 if they are not rounded.

    Raises:
        csv.Error: The text is not valid csv.
    """

    def __init__(self, text: TextIO, budget: ByteLimit) -> None:
        self._reader = csv.reader(text)
        self._budget = budget
        self.columns = columns_of(next(self._reader, []))
        self.rounding_ns = 0

    def rows(self) -> Iterator[list[str]]:
        """Yields each non-empty row.

        Raises:
            RefusedFile: The budget is exhausted.
        """
        for row in self._reader:
            self._budget.spend(_ROW)
            if row:
                yield row

    def text(self, row: list[str], name: str) -> str:
        """Returns a cell, stripped; "" if it is blank or the file has no such column."""
        place, _ = self.columns.get(name, (-1, ""))
        return row[place].strip() if 0 <= place < len(row) else ""

    def bytes(self, row: list[str], name: str) -> int | None:
        """Returns a cell in bytes, by the unit of its column; None if it is blank.

        Raises:
            ValueError: It is not a number.
        """
        text = self.text(row, name)
        return scaled(text, BYTE_UNITS.get(self.columns[name][1], 1)) if text and text != "N/A" else None

    def nanoseconds(self, row: list[str], name: str) -> int | None:
        """Returns a cell in nanoseconds, by the unit of its column; None if it is blank.

        Raises:
            ValueError: It is not a number.
        """
        text = self.text(row, name)
        if not text or text == "N/A":
            return None
        unit = TIME_UNITS.get(self.columns[name][1], 1)
        if "E" in text or "e" in text:
            self.see_rounding(text, unit)
        return scaled(text, unit)

    def see_rounding(self, text: str, unit: int) -> None:
        """Takes a time into account for ``rounding_ns``: the finest one shows how the others were rounded."""
        rounding = rounding_of(text) * unit
        if rounding > _FINE_NS:
            self.rounding_ns = min(self.rounding_ns or rounding, rounding)

    def check_times(self, path: Path, notes: Notes) -> None:
        """Adds MD909 if a spreadsheet has rounded the times, which is visible once the rows have been read.

        Raises:
            RefusedFile: They are rounded to more than a millisecond, so the order of the events is lost.
        """
        if not self.rounding_ns:
            return
        unit = f"{self.rounding_ns / 1e9:g} s" if self.rounding_ns >= _COARSE_NS else f"{self.rounding_ns / 1000:g} us"
        if self.rounding_ns > _COARSE_NS:
            raise RefusedFile(
                phrase("errors.resaved", path=str(path), what=phrase("errors.resaved.times", unit=unit)),
                phrase("errors.resaved.original"),
            )
        notes.add("MD909", phrase("notes.rounded", unit=unit))
