"""The chunks that TensorFlow's and JAX's best-fit allocator (BFC) lists in a log when it runs out of memory.

The list follows "BFCAllocator dump for GPU_0_bfc": for each region that the allocator obtained from the driver, the
address and size of its chunks in use and free, with the operator that allocated a chunk if the program records it. It
is the state at the failure, so the trace has one event: the failed request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.enclosing import StackTable
from memdiag.sources.growing import ByteLimit, Columns
from memdiag.sources.guard import guard
from memdiag.sources.log_lines import lines_of
from memdiag.sources.notes import Notes, on_device
from memdiag.sources.partial import blanks_of
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array, Table
from memdiag.units import format_bytes

FORMAT = "bfc-dump"

_WHAT, _HINT = "sources.bfc-dump", "sources.bfc-dump.hint"
_BEGIN = "BFCAllocator dump for "
_NAME = re.compile(_BEGIN + r"(\w{1,80})")
_CHUNK = re.compile(
    r"(?P<state>InUse|Chunk|Free )\s{0,3}at (?:0x)?(?P<address>[0-9a-fA-F]{1,16}) of size (?P<size>\d{1,15})"
    r"(?: by op (?P<op>[^\s]{1,400}))?"
)
_FAILED = re.compile(r"ran out of memory trying to allocate [\d.]{1,20}\w{0,6} ?\(rounded to (?P<size>\d{1,15})\)")
_LIMIT = re.compile(r"^Limit:\s{1,40}(\d{1,19})")
_DEVICE = re.compile(r"(?:GPU|gpu|TPU|XPU)_(\d{1,4})_")
_MOST_ADDRESS = 1 << 62
_FREE, _USED = 0, 1


@dataclass(slots=True)
class _Dump:
    """One list of chunks.

    Attributes:
        name: Name of the allocator.
        failed_bytes: The failed request, rounded; -1 if unknown.
        limit_bytes: Most bytes that the allocator may take, or -1 if unknown.
        chunks: Columns address, size, state, stack.
    """

    name: str
    failed_bytes: int
    chunks: Columns
    limit_bytes: int = -1
    operators: set[str] = field(default_factory=set)


def sniff(head: bytes) -> bool:
    """Returns whether the beginning contains a list of chunks, or the line before it."""
    return _BEGIN.encode() in head or (b"bfc_allocator" in head and b"ran out of memory trying to allocate" in head)


def read(path: Path) -> Trace:
    """Reads the last list of each allocator in a log.

    Raises:
        RefusedFile: It contains no list of chunks.
    """
    with guard(path, _WHAT, _HINT):
        budget = ByteLimit(path)
        stacks = StackTable(budget)
        dumps = {name: dump for name, dump in _dumps(path, budget, stacks).items() if len(dump.chunks)}
        if not dumps:
            raise RefusedFile(phrase("errors.no-memory-events", path=str(path)), phrase(_HINT))
        notes = Notes()
        raws = []
        for number, dump in zip(_numbers(list(dumps)), dumps.values(), strict=True):
            raws.append(_raw(number, dump))
            if dump.limit_bytes >= 0:
                limit = phrase("notes.bfc.limit", name=dump.name, bytes=format_bytes(dump.limit_bytes))
                notes.add("MD913", on_device(number, limit))
        if not len(stacks):
            notes.add("MD911")
        raw = RawTrace(str(path), FORMAT, None, raws, stacks=stacks.finish(), notes=notes.list())
        return build_trace(raw)


def _dumps(path: Path, budget: ByteLimit, stacks: StackTable) -> dict[str, _Dump]:
    """Returns the last list of each allocator."""
    found: dict[str, _Dump] = {}
    current: _Dump | None = None
    failed = -1
    for line in lines_of(path, budget):
        if match := _FAILED.search(line):
            failed = int(match["size"])
        elif _BEGIN in line and (match := _NAME.search(line)):
            columns = Columns(("address", "size", "state", "stack"), budget)
            current = found[match[1]] = _Dump(match[1], failed, columns)
            failed = -1
        elif current is not None and " of size " in line and (match := _CHUNK.search(line)):
            _add(current, match, stacks)
        elif current is not None and (match := _LIMIT.match(line)):
            current.limit_bytes = int(match[1])
    return found


def _add(dump: _Dump, match: re.Match[str], stacks: StackTable) -> None:
    address, size = int(match["address"], 16), int(match["size"])
    if not 0 <= address < _MOST_ADDRESS or not size:
        return
    used = _FREE if match["state"] == "Free " else _USED
    operator = match["op"] if used else None
    stack = stacks.number((Frame("", 0, operator),)) if operator else -1
    dump.chunks.add(address, size, used, stack)


def _numbers(names: list[str]) -> list[int]:
    """Returns a device number for each allocator: the one in its name, or its place if two share one."""
    own = [int(match[1]) if (match := _DEVICE.search(name)) else -1 for name in names]
    return own if len(set(own)) == len(own) and min(own) >= 0 else list(range(len(names)))


def _raw(number: int, dump: _Dump) -> RawDevice:
    """Returns the state of an allocator, with the failed request as the only event.

    Chunks that follow each other without a gap form a segment: the allocator lists them in order of address.
    """
    chunks = dump.chunks.arrays()
    order = np.argsort(chunks["address"], kind="stable")
    address, size, used, stack = (chunks[name][order] for name in ("address", "size", "state", "stack"))
    ends = np.maximum.accumulate(address + size)
    whole = np.append(True, address[1:] >= ends[:-1])  # a chunk within another one is a damaged line
    address, size, used, stack = address[whole], size[whole], used[whole], stack[whole]
    begins = np.append(True, address[1:] != (address + size)[:-1])
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    totals = np.add.reduceat(size, first)
    held = np.add.reduceat(np.where(used > 0, size, 0), first)
    has_failed = dump.failed_bytes > 0
    return RawDevice(
        device=number,
        action=np.full(int(has_failed), schema.OOM, np.int8),
        addr=np.full(int(has_failed), -1, np.int64),
        size=np.full(int(has_failed), max(dump.failed_bytes, 0), np.int64),
        segments=_segments(address[first], totals, held),
        blocks=Table(
            schema.BLOCKS,
            blanks_of(schema.BLOCKS, len(address))
            | {
                "segment": segment,
                "address": address,
                "size": size,
                "state": np.where(used > 0, schema.ACTIVE_ALLOCATED, schema.INACTIVE),
                "stack": stack,
            },
        ),
    )


def _segments(address: Array, size: Array, held: Array) -> Table:
    """Returns the regions; the best-fit allocator has one pool for all sizes and streams."""
    columns = {"address": address, "total_size": size, "allocated_size": held, "active_size": held}
    pool = dict.fromkeys(("stream", "pool_major", "pool_minor"), np.zeros(len(address), np.int64))
    return Table(schema.SEGMENTS, blanks_of(schema.SEGMENTS, len(address)) | columns | pool)
