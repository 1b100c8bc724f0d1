"""The tables in CSV and Parquet files: tensors, events and call stacks, a million rows at a time in columns.

Columns have the names and numbers of the model (docs/export.md, ``memdiag.trace.schema``), with texts instead of
indices (category, phase, action, name). A row of ``stacks`` has the whole call stack that the column ``stack`` of the
other tables refers to; ``site`` is its short name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memdiag.exports.model import Wanted
from memdiag.text import plain
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.snapshot_fields import TEXT_COLUMNS
from memdiag.trace.table import Array

CHUNK = 50_000
_LONGEST_SITE, _LONGEST_STACK = 300, 20_000
_CODES: dict[str, tuple[str, ...]] = {
    "action": schema.ACTIONS,
    "phase": schema.PHASES,
    "phase_alloc": schema.PHASES,
    "phase_free": schema.PHASES,
    "category": schema.CATEGORIES,
    "lifetime": schema.LIFETIMES,
}
_OF_GROUP = ("pool_major", "pool_minor", "small")


@dataclass(frozen=True)
class Text:
    """A column of text: row ``i`` is ``words[codes[i]]``."""

    codes: Array
    words: Sequence[str]


Column = Array | Text


@dataclass(frozen=True)
class TablePart:
    """Some rows of a table: columns in order."""

    columns: dict[str, Column]
    num_rows: int


class Tables:
    """The tables of a trace in parts, so that only one part at a time is converted.

    Args:
        trace: The trace.
        wanted: The request.
    """

    def __init__(self, trace: Trace, wanted: Wanted) -> None:
        self._trace, self._devices = trace, wanted.devices(trace)
        # One more at the end, for index -1.
        self._sites = (*(plain(trace.stacks.label(stack), _LONGEST_SITE) for stack in range(len(trace.stacks))), "")
        self._names = (*(plain(name, _LONGEST_SITE) for name in trace.strings), "")

    def parts(self, table: str) -> Iterator[TablePart]:
        """Yields the rows of one of ``model.TABLES``, at least one part."""
        if table == "stacks":
            yield from self._stacks()
            return
        for device in self._devices:
            num_rows = len(device.tensors) if table == "tensors" else device.num_events
            for low in range(0, max(num_rows, 1), CHUNK):
                rows = slice(low, min(low + CHUNK, num_rows))
                yield self._tensors(device, rows) if table == "tensors" else self._events(device, rows)
        if not self._devices:
            yield TablePart({}, 0)

    def _tensors(self, device: DeviceTrace, rows: slice) -> TablePart:
        tensors = device.tensors
        columns = self._numbered(device, rows)
        columns["tensor"] = np.arange(rows.start, rows.stop)
        for name in tensors:
            columns[name] = self._column(name, tensors[name][rows])
        columns["name"] = Text(tensors.name[rows], self._names)
        columns["label"] = Text(tensors.label[rows], self._names)
        columns["site"] = Text(tensors.stack[rows], self._sites)
        return TablePart(columns | self._groups(device, tensors.group[rows]), rows.stop - rows.start)

    def _events(self, device: DeviceTrace, rows: slice) -> TablePart:
        events, usage = device.events, device.usage
        columns = self._numbered(device, rows)
        columns["event"] = np.arange(rows.start, rows.stop)
        for name in events:
            columns[name] = self._column(name, events[name][rows])
        columns["site"] = Text(events.stack[rows], self._sites)
        columns |= {name: Text(events[name][rows], self._names) for name in TEXT_COLUMNS}
        columns |= self._groups(device, events.group[rows])
        columns |= {name: usage[name][rows] for name in usage if name != "reference"}
        return TablePart(columns, rows.stop - rows.start)

    def _stacks(self) -> Iterator[TablePart]:
        stacks = self._trace.stacks
        for low in range(0, max(len(stacks), 1), CHUNK):
            rows = range(low, min(low + CHUNK, len(stacks)))
            frames = [plain("; ".join(str(frame) for frame in stacks[row]), _LONGEST_STACK) for row in rows]
            number = np.arange(rows.start, rows.stop)
            whole = Text(number - low, frames)
            yield TablePart({"stack": number, "site": Text(number, self._sites), "frames": whole}, len(rows))

    @staticmethod
    def _numbered(device: DeviceTrace, rows: slice) -> dict[str, Column]:
        return {"device": np.full(rows.stop - rows.start, device.device, np.int32)}

    @staticmethod
    def _column(name: str, values: Array) -> Column:
        return Text(values, _CODES[name]) if name in _CODES else values

    @staticmethod
    def _groups(device: DeviceTrace, group: Array) -> dict[str, Column]:
        """Returns pool and kind of blocks, or -1 if the group is unknown."""
        at, known = np.maximum(group, 0), group >= 0
        if not len(device.groups):
            return {name: np.full(len(group), -1, np.int64) for name in _OF_GROUP}
        return {name: np.where(known, device.groups[name][at].astype(np.int64), -1) for name in _OF_GROUP}
