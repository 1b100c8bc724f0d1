"""``FRAMEWORK/torch.memory_usage`` of an Ascend profiler run: every call of torch_npu's allocators, with its address.

The file is a sequence of records: type (2 bytes), length (4 bytes), value, all little-endian. A free has one record for
the request (1) and one for the completion (2). If no stream is pending, the second is written first, and both become
one event here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from memdiag.sources.ascend_context import ProfilerFacts, context_of
from memdiag.sources.files import read_bytes
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial, unknown
from memdiag.sources.quantities import MOST_BYTES
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array
from memdiag.units import format_bytes

FORMAT = "ascend-memory-usage"

_WHAT = "sources.ascend-memory-usage"
RECORD = "sources.ascend-memory-usage.hint"
_RECORD = np.dtype(
    [
        ("type", "<u2"),
        ("length", "<u4"),
        ("addr", "<i8"),
        ("time", "<i8"),
        ("size", "<i8"),
        ("allocated", "<i8"),
        ("reserved", "<i8"),
        ("active", "<i8"),
        ("stream", "<i8"),
        ("device_type", "i1"),
        ("device", "i1"),
        ("component", "u1"),
        ("call", "u1"),
        ("allocator", "u1"),
        ("thread", "<u8"),
        ("process", "<u8"),
    ]
)
_TYPE = 3
_LENGTH = _RECORD.itemsize - 6
_START = _TYPE.to_bytes(2, "little") + _LENGTH.to_bytes(4, "little")
_HOST = 0
_CACHING = 0
_MALLOC, _FREE, _FREE_COMPLETE = 0, 1, 2


def sniff(head: bytes) -> bool:
    """Returns whether the file begins with the type and length of such a record."""
    return head.startswith(_START)


def read(path: Path) -> Trace:
    """Reads such a file.

    Raises:
        RefusedFile: The file is damaged, or of another version.
    """
    with guard(path, _WHAT, RECORD):
        data = read_bytes(path)
        whole, rest = divmod(len(data), _RECORD.itemsize)
        records = np.frombuffer(data, _RECORD, whole)
        if not ((records["type"] == _TYPE) & (records["length"] == _LENGTH)).all():
            raise ValueError("records of another version, or not in step")
        notes = Notes()
        if rest:
            notes.add("MD916", phrase("notes.cut", bytes=rest))
        context = context_of(path)
        raws = _devices(records, context, notes)
        return build_partial(
            RawTrace(str(path), FORMAT, "npu", raws, torch_version=context.version, settings=context.settings),
            hint=phrase(RECORD),
            complete=False,
            notes=notes,
        )


def _devices(records: Array, context: ProfilerFacts, notes: Notes) -> list[RawDevice]:
    good = (np.abs(records["size"]) <= MOST_BYTES) & (records["call"] <= _FREE_COMPLETE) & (records["device"] >= 0)
    if not good.all():
        notes.add("MD916", phrase("notes.impossible", count=int((~good).sum())))
        records = records[good]
    outside = records["component"] != _CACHING
    if outside.any():
        held = int(records["reserved"][outside].max())
        notes.add("MD918", phrase("notes.workspace.records", bytes=format_bytes(held), count=int(outside.sum())))
        records = records[~outside]
    host = records["device_type"] == _HOST
    if host.any():
        notes.add("MD918", phrase("notes.host.records", count=int(host.sum())))
        records = records[~host]
    for code in ("MD911", "MD914", "MD917"):
        notes.add(code)
    notes.add("MD913", phrase("notes.sum.only"))
    return [
        _device(records[records["device"] == number], number, context)
        for number in np.unique(records["device"]).tolist()
    ]


def _device(records: Array, number: int, context: ProfilerFacts) -> RawDevice:
    action = _actions(records["addr"], records["call"])
    records, action = records[action >= 0], action[action >= 0]
    time = records["time"]
    if context.clock_offset is not None:
        ticks = time - context.start_count
        time = (ticks if context.tick == 1 else (ticks * context.tick).astype(np.int64)) + context.clock_offset
    curves = {name: np.where(records[name] >= 0, records[name], -1) for name in ("allocated", "reserved", "active")}
    return RawDevice(
        device=number,
        action=action,
        addr=np.where(records["addr"] > 0, records["addr"], -1),
        size=np.abs(records["size"]),
        stream=records["stream"].copy(),
        time_us=time // 1000,
        curves={**curves, "requested": unknown(len(records))},
    )


def _actions(addr: Array, call: Array) -> Array:
    """Returns the action of each record (int8), or -1 for the second half of a free that was completed at once."""
    order = np.lexsort((np.arange(len(addr)), addr))
    calls = call[order].astype(np.int64)
    same = addr[order][1:] == addr[order][:-1]
    before, after = np.full(len(addr), -1), np.full(len(addr), -1)  # calls at the same address
    before[1:] = np.where(same, calls[:-1], -1)
    after[:-1] = np.where(same, calls[1:], -1)
    asked = calls == _FREE
    second_half = asked & (before == _FREE_COMPLETE)
    # Without a completion in the window, a block is still pending; old files have no completions at all.
    waits = asked & ((after == _FREE_COMPLETE) | ((after == -1) & bool((call == _FREE_COMPLETE).any())))
    actions = np.empty(len(addr), np.int8)
    actions[order] = np.select(
        [calls == _MALLOC, second_half, waits], [schema.ALLOC, -1, schema.FREE_REQUESTED], schema.FREE_COMPLETED
    )
    return actions
