"""Reads files of ``prof.export_memory_timeline``.

``.raw.json.gz`` has every change with its category, ``.json`` has sums by category.

A raw row is ``[time in ns, action, bytes, category]``. Bytes are negative for a release, and the time is -1 for memory
that existed before. A tensor that is modified in place has two rows, out of its old category and into its new one.
Actions count from 1 in PyTorch and from 0 in torch_npu. Categories are PyTorch's own, derived from the graph; the
identity of tensors is not recorded. The ``.html`` output of the same function contains only an image.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.sources.growing import ByteLimit, Columns
from memdiag.sources.guard import guard
from memdiag.sources.json_stream import JsonStream
from memdiag.sources.notes import Notes
from memdiag.sources.pairing import Pairing
from memdiag.sources.partial import build_partial, unknown
from memdiag.sources.quantities import byte_count, whole
from memdiag.sources.text_files import open_text
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array
from memdiag.units import format_bytes

FORMAT = "memory-timeline"

_WHAT = "sources.memory-timeline"
RECORD = "sources.memory-timeline.hint"
# In the order of the profiler's category numbers. AUTOGRAD_DETAIL are intermediate gradients; the last one is "none of
# these".
_CATEGORIES = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "temporary", "unknown")
_CODES = np.array([schema.CATEGORIES.index(name) for name in _CATEGORIES], np.int8)
_CATEGORIES_NAMED = (
    "parameters",
    "optimizer state",
    "inputs",
    "temporaries",
    "activations",
    "gradients",
    "autograd details",
    "others",
)
_CHANGED = 2  # follows "preexisting" and "created"
_FIRST_NANOSECONDS = 10**17  # 1973 in nanoseconds, the year 5138 in microseconds


def sniff(head: bytes) -> bool:
    """Returns whether this is JSON that begins with a list of numbers within a list."""
    start = b"".join(head[:4096].split()).removeprefix(b"\xef\xbb\xbf")
    return start.startswith(b"[[") and start[2:3] in b"-0123456789]"


def read(path: Path) -> Trace:
    """Reads a memory timeline.

    Raises:
        RefusedFile: The timeline is damaged or empty.
    """
    sums: tuple[Array, Array] | None = None
    with guard(path, _WHAT, RECORD):
        budget = ByteLimit(path)
        rows = _Rows(budget)
        with open_text(path, errors="replace") as text:
            stream = JsonStream(text, budget)
            first: Array = np.empty(0, np.int64)
            for count, _ in enumerate(stream.items()):
                if count == 0:
                    first = _numbers(stream, budget)
                elif count == 1:
                    stream.take("[")
                    if stream.peek() == "[":
                        sums = first, _flat(stream, len(first), budget)
                        continue
                    rows.add(first.tolist())
                    rows.add(_numbers(stream, budget, opened=True).tolist())
                elif sums:
                    raise ValueError("more than times and sums")
                else:
                    rows.add(stream.value())
            stream.finish()
        if sums:
            return _sums(path, *sums)
        if not len(rows.columns) and not rows.unusable:
            rows.add(first.tolist())
        return _changes(path, rows)


def _numbers(stream: JsonStream, budget: ByteLimit, *, opened: bool = False) -> Array:
    """Reads a list of numbers.

    Args:
        opened: Whether the opening bracket has been consumed.
    """
    numbers = Columns(("number",), budget)
    for _ in stream.items(opened=opened):
        numbers.add(whole(stream.value()))
    return numbers.arrays()["number"]


def _flat(stream: JsonStream, count: int, budget: ByteLimit) -> Array:
    """Reads ``count`` lists of equal length as the rows of an array; the bracket around them has been consumed."""
    flat = Columns(("number",), budget)
    width = 0
    for _ in stream.items(opened=True):
        row = stream.value()
        if not row or width not in (0, len(row)):
            raise ValueError("sums of different lengths")
        width = len(row)
        for value in row:
            flat.add(byte_count(value))
    if len(flat) != count * width:
        raise ValueError("times and sums differ in number")
    return flat.arrays()["number"].reshape(count, width)


class _Rows:
    """Columns of a list of changes."""

    def __init__(self, budget: ByteLimit) -> None:
        self.columns = Columns(("time", "action", "size", "category"), budget)
        self.unusable = 0

    def add(self, row: Any) -> None:
        """Adds ``[time, action, bytes, category]``, or counts the row as unusable."""
        try:
            time, action, size, category = row
            time, action, size, category = whole(time), whole(action), byte_count(size), whole(category)
        except (ValueError, TypeError):
            self.unusable += 1
            return
        if 0 <= action <= 4 and 0 <= category < len(_CATEGORIES):
            self.columns.add(time, action, size, category)
        else:
            self.unusable += 1


def _first_action(time: Array, action: Array) -> int:
    """Returns the number of the action "preexisting": 1 in PyTorch, 0 in torch_npu."""
    before = action[(time == -1) & (action <= 1)]
    if len(before):
        return int(before[0])
    return 0 if (action == 0).any() else 1


def _changes(path: Path, rows: _Rows) -> Trace:
    """Builds a trace from changes."""
    columns = rows.columns.arrays()
    actions, sizes = columns["action"].tolist(), columns["size"].tolist()
    kinds = list(zip((abs(size) for size in sizes), columns["category"].tolist(), strict=True))
    changed = _first_action(columns["time"], columns["action"]) + _CHANGED
    pairing = Pairing()
    kept, identity = array("q"), array("q")
    at = 0
    while at < len(actions):
        if (
            actions[at] == changed
            and at + 1 < len(actions)
            and actions[at + 1] == changed
            and sizes[at] == -sizes[at + 1] < 0
        ):
            if kinds[at] != kinds[at + 1]:
                pairing.becomes(kinds[at], kinds[at + 1])
            at += 2
            continue
        if sizes[at]:
            kept.append(at)
            identity.append(pairing.born(kinds[at]) if sizes[at] > 0 else pairing.dies(kinds[at]))
        at += 1
    row = np.array(kept, np.int64)
    size = columns["size"][row]
    notes = _notes()
    notes.add("MD915", phrase("notes.newest.category"))
    if rows.unusable:
        notes.add("MD916", phrase("notes.rows", count=rows.unusable))
    raw = RawDevice(
        device=0,
        action=np.where(size > 0, schema.ALLOC, schema.FREE_COMPLETED).astype(np.int8),
        addr=np.array(identity, np.int64),
        size=np.abs(size),
        time_us=_microseconds(columns["time"][row]),
        has_addresses=False,
        curves={"active": unknown(len(row)), "requested": unknown(len(row))},
        category=_CODES[columns["category"][row]],
    )
    return build_partial(RawTrace(str(path), FORMAT, None, [raw]), hint=phrase(RECORD), complete=False, notes=notes)


def _sums(path: Path, times: Array, table: Array) -> Trace:
    """Builds a trace from sums by category: a curve."""
    count = len(times)
    allocated = table.sum(axis=1)
    notes = _notes()
    peak = int(np.argmax(allocated)) if count else 0
    at_peak = ""
    if count and table.shape[1] == 1 + len(_CATEGORIES_NAMED):  # the first sum is always 0
        parts = sorted(zip(table[peak, 1:].tolist(), _CATEGORIES_NAMED, strict=True), reverse=True)
        at_peak = phrase(
            "notes.sums.peak", parts=", ".join(f"{name} {format_bytes(size)}" for size, name in parts if size)
        )
    notes.add("MD915", phrase("notes.sums", peak=at_peak))
    nothing = unknown(count)
    raw = RawDevice(
        device=0,
        action=np.full(count, schema.UNKNOWN, np.int8),
        addr=nothing,
        size=np.zeros(count, np.int64),
        time_us=_microseconds(times),
        has_addresses=False,
        curves={"allocated": allocated, "active": nothing, "requested": nothing, "reserved": nothing},
    )
    return build_partial(RawTrace(str(path), FORMAT, None, [raw]), hint=phrase(RECORD), complete=False, notes=notes)


def _microseconds(time: Array) -> Array:
    """Returns times in microseconds, given microseconds or nanoseconds; -1 is kept."""
    nanoseconds = len(time) > 0 and int(time.max()) >= _FIRST_NANOSECONDS
    return np.where(time < 0, -1, time // 1000 if nanoseconds else time)


def _notes() -> Notes:
    notes = Notes()
    for code in ("MD910", "MD911", "MD917"):
        notes.add(code)
    notes.add("MD913", phrase("notes.unreserved"))
    notes.add("MD914", phrase("notes.profiler-bytes"))
    return notes
