"""Logs of RMM's LoggingResourceAdaptor: ``Thread,Time,Action,Pointer,Size,Stream``, one row for each call.

The time is that of the day, so it begins again at midnight. Sizes are those that the program requested. RMM appends
``.dev<number>`` to the name of a log for each device.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from memdiag.sources.csv_table import CsvTable, columns_in
from memdiag.sources.growing import ByteLimit, Columns
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial
from memdiag.sources.quantities import byte_count, scaled, whole
from memdiag.sources.text_files import open_text
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array

FORMAT = "rmm-csv"

_WHAT, _HINT = "sources.rmm-csv", "sources.rmm-csv.hint"
_ACTIONS = {
    "allocate": schema.ALLOC,
    "free": schema.FREE_COMPLETED,
    "deallocate": schema.FREE_COMPLETED,
    "allocate failure": schema.OOM,
    "allocate_failure": schema.OOM,
}
_COLUMNS = {"action", "pointer", "size", "stream"}
_DEVICE = re.compile(r"\.dev(\d{1,4})\b")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.:](\d{1,9}))?\Z")
_DAY = 86_400_000_000  # microseconds
_MOST_ADDRESS = 1 << 62


def sniff(head: bytes) -> bool:
    """Returns whether the first line has RMM's columns."""
    return columns_in(head) >= _COLUMNS


def read(path: Path) -> Trace:
    """Reads a log.

    Raises:
        RefusedFile: It is damaged or empty.
    """
    notes = Notes()
    with guard(path, _WHAT, _HINT):
        rows = _rows(path, notes)
        number = _DEVICE.search(path.name)
        device = int(number[1]) if number else 0
        if number is None:
            notes.add("MD919", phrase("notes.rmm.device"))
        for code in ("MD910", "MD911", "MD913", "MD917"):
            notes.add(code)
        raw = RawDevice(
            device=device,
            action=rows["action"].astype(np.int8),
            addr=rows["addr"],
            size=rows["size"],
            stream=rows["stream"],
            time_us=_days(rows["time"]),
            has_addresses=False,
        )
        return build_partial(RawTrace(str(path), FORMAT, None, [raw]), hint=phrase(_HINT), complete=None, notes=notes)


def _rows(path: Path, notes: Notes) -> dict[str, Array]:
    """Returns the rows of a log that can be used."""
    budget = ByteLimit(path)
    columns = Columns(("action", "addr", "size", "stream", "time"), budget)
    unusable = 0
    with open_text(path) as text:
        table = CsvTable(text, budget)
        for row in table.rows():
            action = _ACTIONS.get(table.text(row, "action").lower())
            try:
                pointer, size = _pointer(table.text(row, "pointer")), byte_count(table.text(row, "size"))
                time, stream = _time(table.text(row, "time")), _pointer(table.text(row, "stream"))
            except ValueError:
                action = None
            if action is None or size < 0 or (pointer <= 0) != (action == schema.OOM):
                unusable += 1
                continue
            columns.add(action, -1 if action == schema.OOM else pointer, size, max(stream, 0), time)
    if unusable:
        notes.add("MD916", phrase("notes.rows", count=unusable))
    return columns.arrays()


def _pointer(text: str) -> int:
    """Returns an address; -1 for a null pointer."""
    number = -1 if text in {"", "(nil)", "0x0"} else whole(text)
    if number >= _MOST_ADDRESS:
        raise ValueError("an impossible address")
    return number


def _time(text: str) -> int:
    """Returns a time in microseconds, of the day or since 1970; -1 if there is none.

    Raises:
        ValueError: The text is not a time.
    """
    if not text:
        return -1
    match = _CLOCK.match(text)
    if match is None:
        return scaled(text, 1_000_000)
    hours, minutes, seconds = (int(group) for group in match.groups()[:3])
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int((match[4] or "0")[:6].ljust(6, "0"))


def _days(times: Array) -> Array | None:
    """Returns times that do not begin again at midnight, or None if some are unknown."""
    if not len(times) or (times < 0).any():
        return None
    is_next = np.append(False, np.diff(times) < -_DAY // 2)
    continued: Array = times + np.cumsum(is_next) * _DAY
    return continued
