"""Builds devices from msmemscope's rows.

A device is one process and one allocator, with segments if all of them were recorded.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from pathlib import Path

import numpy as np

from memdiag.sources.growing import BLANK, take
from memdiag.sources.msmemscope_rows import BORN, DIES, FAILS, HOST, NOWHERE, MemscopeRows
from memdiag.sources.notes import Notes, on_device
from memdiag.sources.partial import build_partial, spans_table, unknown
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array, Table
from memdiag.units import format_bytes

RECORD = "sources.msmemscope.hint"
_DEVICE_POOLS = ("PTA", "MINDSPORE", "ATB", "PTA_WORKSPACE", "HAL")
_ROUNDING = ("PTA", "MINDSPORE", "ATB")
_HOST_POOLS = ("HOST_PINNED", "HOST", "HAL")
_FIRST_NANOSECONDS = 10**17
# In the order of BORN, DIES, FAILS, then the same for segments.
_ACTIONS = np.array(
    [schema.ALLOC, schema.FREE_COMPLETED, schema.OOM, schema.SEGMENT_ALLOC, schema.SEGMENT_FREE], np.int8
)
_OF_SEGMENT = 3


def build(path: Path, format: str, rows: MemscopeRows, notes: Notes | None = None) -> Trace:
    """Builds the trace of a file.

    Raises:
        RefusedFile: It contains no allocations.
    """
    columns = rows.columns.arrays()
    columns = take(columns, np.lexsort((columns["id"], columns["time"])))
    scale = 1000 if rows.last < _FIRST_NANOSECONDS else 1  # msleaks: microseconds
    _give_places(columns, rows.pools.find("HAL"))
    columns["stack"] = np.where(columns["stack"] >= 0, columns["stack"], _operators(rows, columns))
    notes = notes or Notes()
    raws = []
    devices = sorted(set(columns["device"].tolist()) - {NOWHERE}, key=lambda device: (device == HOST, device))
    for device in devices:
        number = device if device >= 0 else max((d for d in devices if d >= 0), default=-1) + 1
        if device == HOST:
            notes.add("MD919", phrase("notes.host", device=str(number)))
        raws.append(_device(take(columns, columns["device"] == device), device, number, rows, scale, notes))
    notes.add("MD917")
    if not rows.stacks.has_lines():
        notes.add("MD911", phrase("notes.operators") if len(rows.stacks) else "")
    if rows.unusable:
        notes.add("MD916", phrase("notes.rows", count=rows.unusable))
    names, spans = _ranges(rows, scale)
    return build_partial(
        RawTrace(str(path), format, "npu", raws, stacks=rows.stacks.finish(), strings=names, annotations=spans),
        hint=phrase(RECORD),
        complete=None,
        notes=notes,
    )


def _give_places(columns: dict[str, Array], hal: int) -> None:
    """Sets the device of driver frees, which their rows lack, to that of the allocation at the same address."""
    device = columns["device"]
    home: dict[tuple[int, int], int] = {}
    mine = np.flatnonzero(columns["pool"] == hal)
    for at, what, process, addr in zip(
        mine.tolist(), *(columns[name][mine].tolist() for name in ("what", "process", "addr")), strict=True
    ):
        if what == BORN:
            home[process, addr] = int(device[at])
        elif device[at] == NOWHERE:
            device[at] = home.get((process, addr), NOWHERE)


def _operators(rows: MemscopeRows, columns: dict[str, Array]) -> Array:
    """Returns, per row, the stack of operators that were running on its thread."""
    operators = rows.operators.arrays()
    names = rows.names.list()
    found = np.full(len(columns["time"]), BLANK, np.int64)
    count = len(operators["time"])
    time = np.concatenate((operators["time"], columns["time"]))
    order = np.argsort(time, kind="stable")
    running: dict[int, list[int]] = {}
    for at in order.tolist():
        if at >= count:
            calls = running.get(int(columns["thread"][at - count]))
            if calls:
                found[at - count] = rows.stacks.number(
                    tuple(Frame("", 0, names[name]) for name in reversed(calls[-64:]))
                )
            continue
        calls = running.setdefault(int(operators["thread"][at]), [])
        name = int(operators["name"][at])
        if operators["starts"][at]:
            calls.append(name)
        elif name in calls:
            del calls[len(calls) - 1 - calls[::-1].index(name) :]
    return found


def _device(
    columns: dict[str, Array], device: int, number: int, rows: MemscopeRows, scale: int, notes: Notes
) -> RawDevice:
    here = {name: code for code, name in enumerate(rows.pools.list()) if name and (columns["pool"] == code).any()}
    preferred = _HOST_POOLS if device == HOST else _DEVICE_POOLS
    main = next((name for name in preferred if name in here), next(iter(sorted(here)), ""))
    in_pool = columns["pool"] == here.get(main, BLANK)
    processes, counts = np.unique(columns["process"][in_pool], return_counts=True)
    process = int(processes[np.argmax(counts)]) if len(processes) else BLANK
    if main in _ROUNDING:
        notes.add("MD914")
    if len(processes) > 1:
        notes.add("MD918", on_device(number, phrase("notes.one-process", process=str(process), count=len(processes))))
    mine = take(columns, (columns["process"] == process) & (in_pool | (columns["what"] == FAILS)))
    for name in sorted(set(here) - {main}):
        held = _highest(take(columns, (columns["pool"] == here[name]) & (columns["process"] == process)))
        if held and not (main in _DEVICE_POOLS[:2] and name == "HAL"):
            notes.add("MD918", on_device(number, phrase("notes.other-pool", bytes=format_bytes(held), name=name)))
    segments = None
    if "HAL" in here and main != "HAL" and device != HOST:
        driver = take(columns, (columns["pool"] == here["HAL"]) & (columns["process"] == process))
        segments = _segments(mine, driver, number, notes)
    if segments is None:
        notes.add("MD910")
        notes.add("MD913", on_device(number, phrase("notes.sum" if _totals_fit(mine) else "notes.unreserved")))
    events = mine if segments is None else _with_segments(mine, segments)
    return _raw(events, number, segments is not None, scale, rows.capacity.get(device))


def _totals_fit(rows: dict[str, Array]) -> bool:
    """Returns whether the rows' own totals are plausible: they exist, and used bytes never exceed reserved bytes."""
    happened = rows["what"] != FAILS
    total, used = rows["total"][happened], rows["used"][happened]
    return bool((total >= 0).all() and (used >= 0).all() and (used <= total).all())


def _highest(rows: dict[str, Array]) -> int:
    """Returns the peak of reserved bytes."""
    live: dict[int, int] = {}
    held = most = 0
    for what, addr, size in zip(*(rows[name].tolist() for name in ("what", "addr", "size")), strict=True):
        held -= live.pop(addr, 0)
        if what == BORN:
            live[addr] = size
            held += size
            most = max(most, held)
    return most


def _segments(blocks: dict[str, Array], driver: dict[str, Array], device: int, notes: Notes) -> Array | None:
    """Returns the driver rows that reserved and released the ranges of the blocks, or None if some are missing.

    A range counts as a segment once it contains a block. The blocks' own totals show whether all were recorded.
    """
    time = np.concatenate((driver["time"], blocks["time"]))
    identity = np.concatenate((driver["id"], blocks["id"]))
    count = len(driver["time"])
    starts: list[int] = []
    live: dict[int, int] = {}  # first address: driver row
    used: dict[int, int] = {}  # row that reserved a range: row that released it, or BLANK
    outside = 0
    for at in np.lexsort((identity, time)).tolist():
        if at >= count:
            addr, size = int(blocks["addr"][at - count]), int(blocks["size"][at - count])
            if blocks["what"][at - count] != BORN:
                continue
            place = bisect_right(starts, addr) - 1
            row = live[starts[place]] if place >= 0 else BLANK
            if row == BLANK or addr + size > starts[place] + int(driver["size"][row]):
                outside += 1
            else:
                used.setdefault(row, BLANK)
            continue
        addr = int(driver["addr"][at])
        if addr in live:
            row = live.pop(addr)
            starts.remove(addr)
            if row in used:
                used[row] = at
        if driver["what"][at] == BORN:
            insort(starts, addr)
            live[addr] = at
    if outside:
        notes.add("MD913", on_device(device, phrase("notes.early-ranges", count=outside)))
        return None
    rows = np.array(sorted({row for pair in used.items() for row in pair if row != BLANK}), np.int64)
    if not len(rows) or not _agree(blocks, {name: values[rows] for name, values in driver.items()}):
        notes.add("MD913", on_device(device, phrase("notes.mismatch")))
        return None
    return np.stack([driver[name][rows] for name in ("time", "id", "what", "addr", "size")])


def _agree(blocks: dict[str, Array], driver: dict[str, Array]) -> bool:
    """Returns whether the ranges add up to the reserved totals at every block row that has one."""
    change = np.where(driver["what"] == BORN, driver["size"], -driver["size"])
    freed = driver["what"] == DIES
    # The size of a driver free may differ from that of its allocation, so only its address is used.
    sizes = dict(zip(driver["addr"][~freed].tolist(), driver["size"][~freed].tolist(), strict=True))
    change[freed] = [-sizes.get(addr, 0) for addr in driver["addr"][freed].tolist()]
    held = np.concatenate(([0], np.cumsum(change)))[np.searchsorted(driver["time"], blocks["time"], side="right")]
    said = blocks["total"] >= 0
    return bool(said.any() and (held[said] == blocks["total"][said]).all())


def _with_segments(blocks: dict[str, Array], segments: Array) -> dict[str, Array]:
    """Returns blocks and segments in order of time; segment rows have separate codes."""
    time, identity, what, addr, size = segments
    nothing = unknown(len(time))
    more = {"time": time, "id": identity, "what": what + _OF_SEGMENT, "addr": addr, "size": size}
    joined = {name: np.concatenate((more.get(name, nothing), values)) for name, values in blocks.items()}
    joined["category"] = np.maximum(joined["category"], 0)
    return take(joined, np.lexsort((joined["id"], joined["time"])))


def _raw(rows: dict[str, Array], number: int, has_segments: bool, scale: int, capacity: int | None) -> RawDevice:
    what = rows["what"]
    action = _ACTIONS[what]
    nothing = unknown(len(what))
    curves = {} if has_segments else {"reserved": nothing, "requested": nothing}
    if not has_segments and (rows["used"][what != FAILS] >= 0).all():
        curves |= {"allocated": rows["used"], "active": nothing}
        if _totals_fit(rows):
            curves["reserved"] = rows["total"]
    return RawDevice(
        device=number,
        action=action,
        addr=rows["addr"],
        size=rows["size"],
        time_us=rows["time"] * scale // 1000,
        stack=rows["stack"].astype(np.int32),
        has_addresses=has_segments,
        curves=curves,
        category=rows["category"].astype(np.int8),
        capacity_bytes=capacity,
    )


def _ranges(rows: MemscopeRows, scale: int) -> tuple[tuple[str, ...], Table]:
    """Returns named ranges as annotations; those called "step start" are the tool's step markers."""
    ranges = rows.ranges.arrays()
    names = rows.names.list()
    labels: dict[str, int] = {}
    which: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    steps = 0
    opened: dict[int, list[int]] = {}
    for at in np.argsort(ranges["time"], kind="stable").tolist():
        calls = opened.setdefault(int(ranges["thread"][at]), [])
        if ranges["name"][at] == BLANK:
            if calls:
                ends[calls.pop()] = int(ranges["time"][at])
            continue
        label = names[int(ranges["name"][at])]
        if label.strip().lower() == "step start":
            label = f"ProfilerStep#{steps}"
            steps += 1
        calls.append(len(which))
        which.append(labels.setdefault(label, len(labels)))
        starts.append(int(ranges["time"][at]))
        ends.append(rows.last)
    starts_at, ends_at, label_of = (np.array(values, np.int64) for values in (starts, ends, which))
    return tuple(labels), spans_table(starts_at * scale // 1000, ends_at * scale // 1000, label_of)
