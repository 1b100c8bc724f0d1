"""Lists of lifetimes, as planners of static memory use them: ``id,lower,upper,size`` (minimalloc, idealloc, TelaMalloc).

A tensor lives in [lower, upper); the unit of time is the planner's own. An older form says ``start`` and ``end``, the latter being
the last moment of life, not the first one after it. A header may be absent: then the columns stand in the order above.
"""

from __future__ import annotations

import csv
from itertools import chain, islice
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.csv_table import columns_in
from memdiag.sources.growing import Budget
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial
from memdiag.sources.quantities import MOST_BYTES
from memdiag.sources.text_files import open_text
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice, events_from_lifetimes
from memdiag.trace.table import Array
from memdiag.units import plural

FORMAT = "lifespans-csv"

_WHAT = "a list of lifetimes"
_HINT = "give lines of id,lower,upper,size: whole numbers, a tensor living from lower until just before upper"
_LOWER, _UPPER, _SIZE = ("lower", "begin", "start"), ("upper", "end"), ("size",)
_MOST_TIME = 1 << 62
_LONGEST_LINE = 64 * 1024
_BYTES_PER_ROW = 48  # while the table grows


def sniff(head: bytes) -> bool:
    """Whether the first line names those columns, or is an id and three whole numbers."""
    columns = columns_in(head)
    if all(any(name in columns for name in names) for names in (_LOWER, _UPPER, _SIZE)):
        return True
    cells = head.split(b"\n", 1)[0].split(b",")
    return len(cells) == 4 and all(cell.strip().isdigit() for cell in cells[1:]) and cells[0].strip().isalnum()


def read(path: Path) -> Trace:
    """Reads a list of lifetimes.

    Raises:
        RefusedFile: It is damaged, or empty.
    """
    notes = Notes()
    with guard(path, _WHAT, _HINT):
        lower, upper, size = _columns(path)
        usable = (size > 0) & (size <= MOST_BYTES) & (upper >= lower) & (np.abs(lower) < _MOST_TIME) & (np.abs(upper) < _MOST_TIME)
        if not usable.all():
            notes.add("MD916", f"{plural(int((~usable).sum()), 'row')} without bytes, or ending before they begin")
            lower, upper, size = lower[usable], upper[usable], size[usable]
        if not len(size):
            raise RefusedFile(f"{path} holds no lifetimes", _HINT)
        lower, upper = lower - lower.min(), upper - lower.min()
        events = events_from_lifetimes(lower, upper, size)
        notes.add("MD910")
        notes.add("MD911")
        notes.add("MD913", "a plan has no segments")
        raw = RawDevice(device=0, action=events["action"], addr=events["addr"], size=events["size"], has_addresses=False)
        return build_partial(path, FORMAT, None, [raw], hint=_HINT, complete=True, notes=notes)


def _columns(path: Path) -> tuple[Array, Array, Array]:
    """Returns lower, upper (exclusive) and size of each row."""
    most_rows = Budget(path).left // _BYTES_PER_ROW
    with open_text(path) as text:
        first = text.readline(_LONGEST_LINE)
        header = [cell.strip().lower() for cell in next(csv.reader([first]), [])]
        named = [next((name for name in names if name in header), None) for names in (_LOWER, _UPPER, _SIZE)]
        with_header = None not in named
        places = [header.index(name) for name in named if name] if with_header else [1, 2, 3]
        row = next((line for line in text if line.strip()), "") if with_header else first
        if not row.strip():
            raise ValueError("no rows")
        lines = chain([row], islice(text, most_rows))
        table = np.loadtxt(lines, np.int64, comments=None, delimiter=",", usecols=places, ndmin=2, quotechar='"')
        if next(text, None) is not None:
            raise ValueError(f"more than {most_rows:,} rows")
    return table[:, 0], table[:, 1] + (1 if named[1] == "end" else 0), table[:, 2]
