"""Databases of the Ascend profilers: ``ascend_pytorch_profiler_<rank>.db`` and msprof's ``msprof_<time>.db``.

MEMORY_RECORD and OP_MEMORY are memory_record.csv and operator_memory.csv in bytes and nanoseconds; their names are
numbers of STRING_IDS. NPU_OP_MEM has the calls of the graph engine's allocator, with addresses; NPU_MODULE_MEM has the
memory of the driver's modules.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.ascend_context import context_of, settings_in
from memdiag.sources.ascend_memory import AscendMemory
from memdiag.sources.driver_memory import DriverMemory
from memdiag.sources.enclosing import StackTable
from memdiag.sources.growing import BLANK, ByteLimit, Columns, take
from memdiag.sources.guard import guard
from memdiag.sources.msmemscope_db import read as read_memscope
from memdiag.sources.msmemscope_db import sniff as is_memscope
from memdiag.sources.msmemscope_db import table_in
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial, spans_table, unknown
from memdiag.sources.quantities import byte_count, whole
from memdiag.sources.sqlite_file import MAGIC, Database, open_database
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array, Table

FORMAT = "ascend-db"

_WHAT = "sources.ascend-db"
RECORD = "sources.ascend-db.hint"
_MOST_STEPS = 100_000
_CHAIN = 200  # bytes of a call chain's line in a list
_TOTALS = ("totalAllocated", "totalReserved", "totalActive")


_NSYS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_GPU_MEMORY_USAGE_EVENTS")  # of nsys export


def sniff(head: bytes) -> bool:
    """Returns whether this is an SQLite database other than msmemscope's.

    The table name may be outside the head, so ``read`` checks again.
    """
    return head.startswith(MAGIC) and not is_memscope(head)


def read(path: Path) -> Trace:
    """Reads a profiler's database.

    Raises:
        RefusedFile: The database is damaged, or has no memory tables.
    """
    with guard(path, _WHAT, RECORD), open_database(path) as database:
        if table_in(database):
            return read_memscope(path)
        budget = ByteLimit(path)
        names = _names(database, "STRING_IDS", "value", budget)
        memory, notes = AscendMemory(budget), Notes()
        _operators(database, names, memory)
        _records(database, names, memory)
        _calls_of_operators(database, names, memory, budget)
        raws, stacks = memory.devices(notes), memory.stacks
        if not raws and database.has("NPU_OP_MEM"):
            notes, stacks = Notes(), StackTable(budget)
            raws = _calls(database, names, stacks, notes, budget)
        if not raws and database.has("NPU_MODULE_MEM"):
            notes = Notes()
            raws = _modules(database, budget).devices(notes)
        if not raws:
            if any(database.has(name) for name in _NSYS):
                raise RefusedFile(phrase("errors.nsys", path=str(path)), phrase("sources.snapshot.hint"))
            raise RefusedFile(phrase("errors.no-table", path=str(path)), phrase(RECORD))
        context = context_of(path)
        strings, spans = _steps(database) or ((), None)
        return build_partial(
            RawTrace(
                str(path),
                FORMAT,
                "npu",
                raws,
                stacks=stacks.finish(),
                torch_version=context.version,
                settings=_settings(database) or context.settings,
                strings=strings,
                annotations=spans,
            ),
            hint=phrase(RECORD),
            complete=False,
            notes=notes,
        )


def _names(database: Database, table: str, column: str, budget: ByteLimit) -> dict[int, str]:
    """Returns the texts of a table of numbered texts."""
    names: dict[int, str] = {}
    if database.has(table, ("id", column)):
        for number, text in database.rows(table, ("id", column)):
            if isinstance(number, int) and isinstance(text, str):
                budget.spend(2 * len(text) + 200)
                names[number] = text
    return names


def _value(value: Any) -> int:
    """Returns the number in a cell, or BLANK if it is empty or negative."""
    return BLANK if value is None or value == "" else max(whole(value), BLANK)


def _device(value: Any) -> int:
    number = 0 if value is None else whole(value)
    if not 0 <= number < 4096:
        raise ValueError(f"device {number}")
    return number


def _operators(database: Database, names: dict[int, str], memory: AscendMemory) -> None:
    if not database.has("OP_MEMORY", ("size", "allocationTime")):
        return
    wanted = (
        "name",
        "size",
        "allocationTime",
        "releaseTime",
        "activeReleaseTime",
        "allocationTotalAllocated",
        "allocationTotalReserved",
        "allocationTotalActive",
        "releaseTotalAllocated",
        "releaseTotalReserved",
        "releaseTotalActive",
        "streamPtr",
        "deviceId",
    )
    for name, size, *cells, stream, device in database.rows("OP_MEMORY", wanted):
        try:
            values = [_value(cell) for cell in cells]
            label = names.get(name, "") if isinstance(name, int) else str(name or "")
            times = values[0], values[1], values[2]
            memory.add_operator(
                label, byte_count(size), times, values[3:6], values[6:9], _value(stream), _device(device)
            )
        except (ValueError, TypeError):
            memory.unusable += 1


def _records(database: Database, names: dict[int, str], memory: AscendMemory) -> None:
    if not database.has("MEMORY_RECORD", ("component", "timestamp")):
        return
    wanted = ("component", "timestamp", *_TOTALS, "streamPtr", "deviceId")
    for component, time, *totals, stream, device in database.rows("MEMORY_RECORD", wanted):
        try:
            label = names.get(component, "") if isinstance(component, int) else str(component or "")
            memory.add_record(label, whole(time), [_value(total) for total in totals], _value(stream), _device(device))
        except (ValueError, TypeError):
            memory.unusable += 1


def _calls_of_operators(database: Database, names: dict[int, str], memory: AscendMemory, budget: ByteLimit) -> None:
    """Reads the Python lines that the operators were called from."""
    if not (
        database.has("PYTORCH_API", ("startNs", "endNs", "name", "callchainId"))
        and database.has("PYTORCH_CALLCHAINS", ("id", "stack"))
    ):
        return
    chains: dict[Any, list[tuple[Any, str]]] = {}
    for chain, line, depth in database.rows("PYTORCH_CALLCHAINS", ("id", "stack", "stackDepth")):
        budget.spend(_CHAIN)
        if isinstance(depth, int | None) and isinstance(line, int):
            chains.setdefault(chain, []).append((depth or 0, names.get(line, "")))
    for name, start, end, chain in database.rows("PYTORCH_API", ("name", "startNs", "endNs", "callchainId")):
        label = names.get(name, "") if isinstance(name, int) else ""
        if chain in chains and memory.knows(label):
            try:
                memory.add_call(label, whole(start), whole(end), ";".join(line for _, line in sorted(chains[chain])))
            except ValueError:
                continue  # one line less


def _modules(database: Database, budget: ByteLimit) -> DriverMemory:
    driver = DriverMemory(budget)
    modules = _names(database, "ENUM_MODULE", "name", budget)
    for module, time, reserved, device in database.rows(
        "NPU_MODULE_MEM", ("moduleId", "timestampNs", "totalReserved", "deviceId")
    ):
        driver.add(_device(device), modules.get(module, str(module)), whole(time), byte_count(reserved))
    return driver


def _calls(
    database: Database, names: dict[int, str], stacks: StackTable, notes: Notes, budget: ByteLimit
) -> list[RawDevice]:
    """Reads NPU_OP_MEM: one row per call, with the address and the totals after it."""
    kinds = {
        **_names(database, "ENUM_MEMORY", "name", budget),
        **{n: t for n, t in names.items() if t in ("allocate", "release")},
    }
    columns = Columns(("time", "addr", "born", "size", "allocated", "reserved", "stack", "component", "device"), budget)
    unusable = 0
    wanted = (
        "operatorName",
        "addr",
        "type",
        "size",
        "timestampNs",
        "totalAllocate",
        "totalReserve",
        "component",
        "deviceId",
    )
    for name, addr, kind, size, time, allocated, reserved, component, device in database.rows("NPU_OP_MEM", wanted):
        try:
            born = {"allocate": 1, "release": 0}[kinds.get(kind, "")]
            label = names.get(name, "")
            columns.add(
                whole(time),
                whole(addr),
                born,
                abs(byte_count(size)),
                _value(allocated),
                _value(reserved),
                stacks.number((Frame("", 0, label),)) if label else -1,
                _value(component),
                _device(device),
            )
        except (ValueError, TypeError, KeyError):
            unusable += 1
    rows = columns.arrays()
    components, counts = np.unique(rows["component"], return_counts=True)
    if len(components) > 1:
        main = int(components[np.argmax(counts)])
        rows = take(rows, rows["component"] == main)
        others = [names.get(other, str(other)) for other in components.tolist() if other != main]
        notes.add("MD918", phrase("notes.shown", name=str(names.get(main, main)), others=", ".join(others)))
    for code in ("MD910", "MD914", "MD917"):
        notes.add(code)
    notes.add("MD911", phrase("notes.operators"))
    notes.add("MD913", phrase("notes.sum"))
    notes.add("MD918", phrase("notes.graph-engine"))
    if unusable:
        notes.add("MD916", phrase("notes.rows", count=unusable))
    return [_calls_of(take(rows, rows["device"] == number), number) for number in np.unique(rows["device"]).tolist()]


def _calls_of(rows: dict[str, Array], number: int) -> RawDevice:
    rows = take(rows, np.lexsort((rows["born"], rows["time"])))  # frees before allocations of the same time
    nothing = unknown(len(rows["time"]))
    return RawDevice(
        device=number,
        action=np.where(rows["born"] > 0, schema.ALLOC, schema.FREE_COMPLETED).astype(np.int8),
        addr=np.where(rows["addr"] > 0, rows["addr"], -1),
        size=rows["size"],
        time_us=rows["time"] // 1000,
        stack=rows["stack"].astype(np.int32),
        has_addresses=False,
        curves={"allocated": rows["allocated"], "reserved": rows["reserved"], "active": nothing, "requested": nothing},
    )


def _settings(database: Database) -> dict[str, object]:
    if not database.has("META_DATA", ("name", "value")):
        return {}
    return next(
        (
            settings_in(value)
            for name, value in database.rows("META_DATA", ("name", "value"))
            if name == "ENV_VARIABLES"
        ),
        {},
    )


def _steps(database: Database) -> tuple[tuple[str, ...], Table] | None:
    """Returns the profiler's steps under the names that PyTorch's profiler uses."""
    if not database.has("STEP_TIME", ("id", "startNs", "endNs")):
        return None
    found = islice(database.rows("STEP_TIME", ("id", "startNs", "endNs")), _MOST_STEPS)
    steps = [
        (whole(number), whole(start) // 1000, whole(end) // 1000)
        for number, start, end in found
        if None not in (number, start, end)
    ]
    names = tuple(f"ProfilerStep#{number}" for number, _, _ in steps)
    _, starts, ends = np.array(steps, np.int64).reshape(-1, 3).T
    return names, spans_table(starts, ends, np.arange(len(steps)))
