"""Traces of the PyTorch profiler in Chrome's format, from ``prof.export_chrome_trace`` with ``profile_memory=True``.

Memory events are instants named ``[memory]``. The first Kineto recorded only bytes and device; later versions also
record the address and the totals of the caching allocator. Sizes are block sizes. A negative size is a free, written at
the request; whether the block then waits for a stream is not recorded. Device type 0 is the host. Operators and Python
calls are spans on the same threads, so the spans that are open at an allocation form its stack.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.enclosing import StackTable, ThreadSpans
from memdiag.sources.growing import ByteLimit, Columns, Names, take
from memdiag.sources.guard import guard
from memdiag.sources.json_stream import JsonStream
from memdiag.sources.known_files import is_snapshot_in_json
from memdiag.sources.notes import Notes, on_device
from memdiag.sources.pairing import pair_by_size
from memdiag.sources.partial import build_partial, spans_table, unknown
from memdiag.sources.quantities import byte_count, scaled, whole
from memdiag.sources.text_files import open_text
from memdiag.text import joined, phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array
from memdiag.units import plural

FORMAT = "chrome-trace"

_WHAT = "sources.chrome-trace"
RECORD = "sources.chrome-trace.hint"
_HOST = 0
_MOST_DEVICES = 1024
_JSON = re.compile(rb"\s*(\{\s*[\"}]|\[\s*[\[{\]])")
# c10::DeviceType, as in the argument "Device Type". 20 is a vendor-registered type.
_BACKENDS = {0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia"}
_OPERATORS = {"cpu_op", "Operator", "python_function", "user_annotation"}
STEP = ("ProfilerStep#", "Optimizer.")
_COLUMNS = ("time", "thread", "bytes", "addr", "allocated", "reserved", "failed")


def sniff(head: bytes) -> bool:
    """Returns whether this is JSON: an object, or a list (of events, as Ascend writes them)."""
    return bool(_JSON.match(head.removeprefix(b"\xef\xbb\xbf"))) and not is_snapshot_in_json(head)


def read(path: Path) -> Trace:
    """Reads a profiler trace.

    Raises:
        RefusedFile: The trace is damaged, or has no memory events.
    """
    with guard(path, _WHAT, RECORD), open_text(path, errors="replace") as text:
        budget = ByteLimit(path)
        reader = _ChromeReader(budget)
        stream = JsonStream(text, budget)
        if stream.peek() == "[":
            reader.events(stream)
        else:
            for key in stream.keys():  # noqa: SIM118 - a method of the stream, not of a dict
                if key == "traceEvents":
                    reader.events(stream)
                else:
                    reader.meta[key] = reader.small(key, stream.value())
        stream.finish()
    if not reader.found_events:
        raise RefusedFile(phrase("errors.json-no-trace", path=str(path)), phrase(RECORD))
    if not reader.devices:
        raise RefusedFile(
            phrase("errors.profiler-no-memory", path=str(path), value=str(reader.kind())), _advice(reader)
        )
    with guard(path, _WHAT, RECORD):
        return reader.build(path)


def _advice(reader: _ChromeReader) -> str:
    if reader.kind() == "Ascend trace_view":
        return (
            "give the operator_memory.csv or memory_record.csv beside it; if there is none, profile with "
            "profile_memory=True"
        )
    return phrase(RECORD)


class _ChromeReader:
    """Collects memory events, spans and annotations from the events of a trace."""

    def __init__(self, budget: ByteLimit) -> None:
        self.budget = budget
        self.meta: dict[str, Any] = {}
        self.found_events = False
        self.num_events = 0
        self.ascend = False
        self.unusable = 0
        self.devices: dict[tuple[int, int], Columns] = {}
        self.stacks = StackTable(budget)
        self.spans = ThreadSpans(self.stacks, budget)
        self.threads = Names(budget)
        self.names = Names(budget)
        self.marks = Columns(("name", "start", "end"), budget)

    def kind(self) -> str:
        """Returns the kind of trace in one word."""
        return "Ascend trace_view" if self.ascend else plural(self.num_events, "event")

    @staticmethod
    def small(key: str, value: Any) -> Any:
        """Returns the trace properties that are used; the others are dropped."""
        return value if key in ("deviceProperties", "baseTimeNanoseconds") else None

    def events(self, stream: JsonStream) -> None:
        """Reads a list of events."""
        for _ in stream.items():
            event = stream.value()
            if not isinstance(event, dict):
                raise ValueError("a list of something else than events")
            self.num_events += 1
            if "ph" in event:
                self.found_events = True
                self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        name, phase, kind = event.get("name"), event.get("ph"), event.get("cat")
        if name in ("[memory]", "[OutOfMemory]"):
            try:
                self._memory(event, event["args"])
            except (ValueError, KeyError, TypeError, OverflowError):
                self.unusable += 1
            return
        if isinstance(event.get("ts"), str):  # Kineto writes numbers
            self.ascend = True
        if phase == "X" and kind in _OPERATORS and isinstance(name, str):
            try:
                start = nanoseconds(event["ts"])
                end = start + nanoseconds(event.get("dur", 0))
            except (ValueError, KeyError, TypeError, OverflowError):
                return
            if name.startswith(STEP) or kind == "user_annotation":
                self.marks.add(self.names.number(name), start // 1000, end // 1000)
            if not name.startswith("ProfilerStep#"):
                args = event.get("args")
                outer = args.get("Call stack") if isinstance(args, dict) else None
                self.spans.add(
                    self._thread(event), start, end, name, outer.replace("\r\n", "") if isinstance(outer, str) else ""
                )

    def _thread(self, event: dict[str, Any]) -> int:
        return self.threads.number(f"{event.get('pid')} {event.get('tid')}")

    def _memory(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        key = (whole(args["Device Type"]), whole(args["Device Id"]))
        failed = event["name"] == "[OutOfMemory]"  # in that case the bytes are the requested bytes
        row = (
            nanoseconds(event["ts"]),
            self._thread(event),
            byte_count(args["Bytes"]),
            whole(args.get("Addr", -1)),
            _total(args.get("Total Allocated")),
            _total(args.get("Total Reserved")),
            int(failed),
        )
        if row[2] or failed:  # a request of 0 bytes allocates nothing
            if key not in self.devices and len(self.devices) >= _MOST_DEVICES:
                raise ValueError("too many devices")
            self.devices.setdefault(key, Columns(_COLUMNS, self.budget)).add(*row)

    def build(self, path: Path) -> Trace:
        """Builds the trace."""
        base = whole(self.meta.get("baseTimeNanoseconds") or 0)
        keys = sorted(self.devices, key=lambda key: (key[0] == _HOST, key))
        notes = Notes()
        notes.add("MD910")
        notes.add("MD917")
        raws = []
        used: set[int] = set()
        for key in keys:
            kind, index = key
            number = index if kind != _HOST and 0 <= index < 4096 and index not in used else max(used, default=-1) + 1
            used.add(number)
            if number != index:
                backend = _BACKENDS[kind] if kind in _BACKENDS else phrase("notes.backend.type", kind=str(kind))
                name = backend if index < 0 else joined([backend, str(index)])
                notes.add("MD919", phrase("notes.backend", device=str(number), name=name))
            raws.append(self._device(key, number, base, notes))
        if not self.stacks.has_lines():
            notes.add("MD911", phrase("notes.operators") if len(self.stacks) else "")
        if self.unusable:
            notes.add("MD916", phrase("notes.events", count=self.unusable))
        marks = self.marks.arrays()
        table = spans_table(marks["start"] + base // 1000, marks["end"] + base // 1000, marks["name"])
        return build_partial(
            RawTrace(
                str(path),
                FORMAT,
                _BACKENDS.get(keys[0][0]),
                raws,
                stacks=self.stacks.finish(),
                strings=self.names.list(),
                annotations=table,
            ),
            hint=phrase(RECORD),
            complete=False,
            notes=notes,
        )

    def _device(self, key: tuple[int, int], number: int, base: int, notes: Notes) -> RawDevice:
        columns = self.devices[key].arrays()
        columns = take(columns, np.argsort(columns["time"], kind="stable"))
        failed, size = columns["failed"] > 0, columns["bytes"]
        change = np.where(failed, 0, size)
        if (failed | (columns["addr"] > 0)).all():
            addr = np.where(failed, -1, columns["addr"])
        else:
            addr = pair_by_size(change.tolist())
            notes.add("MD915", phrase("notes.newest"))
        action = np.where(failed, schema.OOM, np.where(size > 0, schema.ALLOC, schema.FREE_COMPLETED)).astype(np.int8)
        return RawDevice(
            device=number,
            action=action,
            addr=addr,
            size=np.abs(size),
            time_us=(columns["time"] + base) // 1000,
            stack=self.spans.stacks_at(columns["thread"], columns["time"]),
            has_addresses=False,
            curves=_curves(columns, key[0] == _HOST, number if len(self.devices) > 1 else None, notes),
            capacity_bytes=self._capacity(key),
        )

    def _capacity(self, key: tuple[int, int]) -> int | None:
        properties = self.meta.get("deviceProperties")
        if key[0] == _HOST or not isinstance(properties, list):
            return None
        for row in properties:
            if isinstance(row, dict) and row.get("id") == key[1] and isinstance(row.get("totalGlobalMem"), int):
                return int(row["totalGlobalMem"]) if 0 < row["totalGlobalMem"] < 1 << 50 else None
        return None


def _curves(columns: dict[str, Array], host: bool, number: int | None, notes: Notes) -> dict[str, Array]:
    """Returns the curves from the totals of a device.

    Args:
        number: Device number, if the file has several.
    """
    allocated, reserved = columns["allocated"], columns["reserved"]
    nothing = unknown(len(allocated))
    totals = {"allocated": allocated} if (allocated >= 0).all() else {}
    if not totals:
        notes.add("MD917", phrase("notes.no-totals"))
    if host:  # no cache and no rounding
        return {name: allocated for name in ("allocated", "active", "requested") if totals}
    notes.add("MD914")
    if not totals or (reserved < allocated).any():  # some back ends write 0 for unknown values
        reserved = nothing
    detail = phrase("notes.unreserved" if reserved is nothing else "notes.sum")
    notes.add("MD913", detail if number is None else on_device(number, detail))
    return {**totals, "active": nothing, "requested": nothing, "reserved": reserved}


def _total(value: Any) -> int:
    return -1 if value is None else max(byte_count(value), -1)


def nanoseconds(value: Any) -> int:
    """Returns a time in microseconds (a number, or text as Ascend writes it) in nanoseconds.

    Raises:
        ValueError: It is not a number.
    """
    if isinstance(value, str):
        return scaled(value.strip(), 1000)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a time that is not a number")
    return whole(round(value * 1000))
