"""Rows of msmemscope (formerly msleaks), Ascend's memory tracer, from csv or from a database.

There is one row per event, from several layers of allocators: HAL (the driver), PTA (torch_npu's caching allocator,
inside ranges reserved from HAL), MINDSPORE, ATB, HOST, HOST_PINNED. Rows of a block are written when it is freed, so
they have to be sorted by time. Sizes of PTA are block sizes. msleaks wrote negative sizes for frees, decimal addresses,
and microseconds in a column labelled ns.
"""

from __future__ import annotations

import re

from memdiag.sources.enclosing import StackTable, frame_of
from memdiag.sources.growing import BLANK, ByteLimit, Columns, Names
from memdiag.sources.quantities import byte_count, whole
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.stacks import Frame

# Kind of a row.
BORN, DIES, FAILS = range(3)
HOST, NOWHERE = -2, -1  # devices
COLUMNS = (
    "time",
    "id",
    "what",
    "pool",
    "process",
    "device",
    "addr",
    "size",
    "total",
    "used",
    "stack",
    "category",
    "thread",
)
FIRST_COLUMNS = {"event", "event type", "timestamp", "device id", "attr"}

_ATTRIBUTE = re.compile(r"[\"']?([A-Za-z_]{1,32})[\"']?\s*:\s*[\"']?([^,\"'{}]*)")
_ADDRESS = re.compile(r"\s*\[0x[0-9a-fA-F]+\]\Z")
_OWN = re.compile(r"/(msmemscope|msleaks)/python/")
_CATEGORY_OF = {"weight": "parameter", "gradient": "gradient", "optimizer_state": "optimizer_state"}
_MOST_ATTRIBUTES = 8 * 1024  # characters
_DEEPEST = 128


def attributes_of(text: str) -> dict[str, str]:
    """Returns the pairs of an Attr cell, written as ``{k:v,k:v}`` or as JSON."""
    return {key: value.strip() for key, value in _ATTRIBUTE.findall(text[:_MOST_ATTRIBUTES])}


def stack_of(python: str, native: str) -> tuple[Frame, ...]:
    """Returns the frames of both stack cells, innermost first, without the tracer's own frames."""
    frames = [Frame("", 0, _ADDRESS.sub("", line.strip())) for line in native.splitlines()[:_DEEPEST] if line.strip()]
    frames += [
        frame_of(line.strip()) for line in python.splitlines()[:_DEEPEST] if line.strip() and not _OWN.search(line)
    ]
    return tuple(frames) if python.strip() else ()


class MemscopeRows:
    """Collects rows.

    Attributes:
        columns: One row per allocation, free or out-of-memory event (``COLUMNS``).
        pools, names, threads: Numbers of pools, of operators and ranges, of threads.
        operators: Starts and ends of operators: time, thread, name, whether it is a start.
        ranges: Starts (and ends, name -1) of named ranges: time, thread, name.
        capacity: Bytes of each device, if recorded in a snapshot row.
        unusable: Number of rows without the required numbers.
        last: The latest time.
    """

    def __init__(self, budget: ByteLimit) -> None:
        self.columns = Columns(COLUMNS, budget)
        self.stacks = StackTable(budget)
        self.pools = Names(budget)
        self.operators = Columns(("time", "thread", "name", "starts"), budget)
        self.ranges = Columns(("time", "thread", "name"), budget)
        self.names = Names(budget)
        self.threads = Names(budget)
        self.capacity: dict[int, int] = {}
        self.unusable = 0
        self.last = 0

    def add(self, cells: dict[str, str]) -> None:
        """Adds a row, given as text by column name in lower case, without units."""
        event, kind = cells.get("event", "").upper(), cells.get("event type", "").upper()
        try:
            time = whole(cells["timestamp"])
            thread = self.threads.number(f"{cells.get('process id', '')} {cells.get('thread id', '')}")
            self.last = max(self.last, time)
            if event in ("MALLOC", "FREE"):
                self._allocation(cells, BORN if event == "MALLOC" else DIES, kind, time, thread)
            elif kind == "OOM_TRIGGER":
                self._allocation(cells, FAILS, "", time, thread)
            elif event == "OP_LAUNCH" and kind.endswith(("_START", "_END")):
                self.operators.add(time, thread, self.names.number(cells.get("name", "")), int(kind.endswith("_START")))
            elif event == "MSTX" and kind in ("RANGE_START", "RANGE_END"):
                self.ranges.add(
                    time,
                    thread,
                    self.names.number(cells.get("name", "").strip('"')) if kind == "RANGE_START" else BLANK,
                )
            elif kind in ("START_TRACE", "SNAPSHOT") or event == "SNAPSHOT":
                self._capacity(cells)
        except (KeyError, ValueError):
            self.unusable += 1

    def _allocation(self, cells: dict[str, str], what: int, pool: str, time: int, thread: int) -> None:
        attributes = attributes_of(cells.get("attr", ""))
        if what == FAILS:
            addr, size = BLANK, abs(byte_count(attributes["req_size"]))
        else:
            addr, size = whole(attributes.get("addr") or cells["ptr"]), abs(byte_count(attributes["size"]))
            if addr <= 0:
                raise ValueError
        owner = attributes.get("owner", "")
        category = next((_CATEGORY_OF[level] for level in owner.split("@") if level in _CATEGORY_OF), "unknown")
        stack = self.stacks.number(stack_of(cells.get("call stack(python)", ""), cells.get("call stack(c)", "")))
        total, used = (byte_count(attributes.get(name) or BLANK) for name in ("total", "used"))
        number = whole(cells.get("id") or 0)
        process = whole(cells.get("process id") or 0)
        device = device_of(cells.get("device id", ""))
        self.columns.add(
            time,
            number,
            what,
            self.pools.number(pool),
            process,
            device,
            addr,
            size,
            max(total, BLANK),
            max(used, BLANK),
            stack,
            CATEGORIES.index(category),
            thread,
        )

    def _capacity(self, cells: dict[str, str]) -> None:
        attributes = attributes_of(cells.get("attr", ""))
        total = attributes.get("total") or attributes.get("total_mem")
        if total and device_of(cells.get("device id", "")) >= 0:
            self.capacity[device_of(cells["device id"])] = byte_count(total)


def device_of(text: str) -> int:
    """Returns the device index, HOST for the host, or NOWHERE for none."""
    word = text.strip().lower()
    if word in ("cpu", "host"):
        return HOST
    return int(word) if word.isdecimal() and len(word) < 5 else NOWHERE
