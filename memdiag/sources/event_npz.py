"""Plain events recorded by an allocator's caller, one numpy array per column.

The columns are ``op``, ``id``, ``size``, ``stream`` and ``ops`` (names of the codes).

A row is one call: an allocation gets an ``id``, which its free repeats. ``total`` is the size of the device. ``done``
says when other streams are finished: ``now`` (at once) or ``manual`` (at the rows ``complete`` and ``sync``). Results
that may be in the same archive under ``<n>/…`` are not read.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from memdiag.sources.growing import ByteLimit
from memdiag.sources.guard import guard
from memdiag.sources.notes import Notes
from memdiag.sources.partial import build_partial
from memdiag.sources.quantities import MOST_BYTES
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array

FORMAT = "event-npz"

_WHAT = "sources.event-npz"
_HINT = "sources.event-npz.hint"
# A "free" of the program is complete at once from the program's view.
_ACTION_OF = {**schema.ACTION_CODES, "free": schema.FREE_COMPLETED}
_ZIP = b"PK\x03\x04"
_MOST_NAMES = 256
_LONGEST_NAME = 64
_BYTES_PER_ROW = 80  # of all columns, including derived data


def sniff(head: bytes) -> bool:
    """Returns whether this is a zip archive whose first member is a numpy array."""
    return head.startswith(_ZIP) and b".npy" in head[:4096]


def read(path: Path) -> Trace:
    """Reads an archive of events.

    Raises:
        RefusedFile: The archive is damaged, lacks a column, or expands to an absurd size.
    """
    notes = Notes()
    with guard(path, _WHAT, _HINT), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        columns = {name: _integers(archive, members, name, path) for name in ("op", "id", "size")}
        count = len(columns["op"])
        columns["stream"] = (
            _integers(archive, members, "stream", path) if "stream.npy" in members else np.zeros(count, np.int64)
        )
        if {len(values) for values in columns.values()} != {count}:
            raise ValueError("columns of different lengths")
        names = _texts(archive, members, "ops", path)
        totals = _integers(archive, members, "total", path).tolist() if "total.npy" in members else []
        done = _texts(archive, members, "done", path) if "done.npy" in members else []
        raw = _device(columns, names, totals[0] if totals else 0, notes)
        for code in ("MD910", "MD911"):
            notes.add(code)
        notes.add("MD913", phrase("notes.requested"))
        settings: dict[str, object] = {"done": done[0]} if done else {}
        return build_partial(
            RawTrace(str(path), FORMAT, None, [raw], settings=settings), hint=phrase(_HINT), complete=True, notes=notes
        )


def _array(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, path: Path) -> Array:
    """Returns a member of the archive, after checking its header against the file size before memory is reserved."""
    info = members.get(f"{name}.npy")
    if info is None:
        raise ValueError(f"it has no column {name!r}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(f"column {name!r} is packed in a way that numpy does not use")
    with archive.open(info) as file:
        version = npy.read_magic(file)
        reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if reader is None:
            raise ValueError(f"column {name!r} has a header of version {version}")
        shape, _, dtype = reader(file)
        if dtype.hasobject or len(shape) > 1:
            raise ValueError(f"column {name!r} is not a row of plain values")
        count = int(np.prod(shape, dtype=object))
        if count * dtype.itemsize > info.file_size:
            raise ValueError(f"column {name!r} is cut")
        if count > ByteLimit(path).left // _BYTES_PER_ROW:
            raise ValueError(f"column {name!r} has {count:,} rows")
        return np.frombuffer(file.read(count * dtype.itemsize), dtype, count)


def _integers(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, path: Path) -> Array:
    values = _array(archive, members, name, path)
    if values.dtype.kind not in "iu" or values.dtype.itemsize > 8:
        raise ValueError(f"column {name!r} holds no integers")
    if values.dtype.kind == "u" and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"column {name!r} holds numbers of 64 bits")
    return values.astype(np.int64)


def _texts(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, path: Path) -> list[str]:
    values = _array(archive, members, name, path)
    if values.dtype.kind != "U" or len(values) > _MOST_NAMES or values.dtype.itemsize > 4 * _LONGEST_NAME:
        raise ValueError(f"{name!r} holds no names")
    return [str(value) for value in values]


def _device(columns: dict[str, Array], names: list[str], total: int, notes: Notes) -> RawDevice:
    op, identity, size = columns["op"], columns["id"], columns["size"]
    if len(op) and not (int(op.min()) >= 0 and int(op.max()) < len(names)):
        raise ValueError("a code in 'op' that 'ops' does not name")
    strange = sorted({name for name in names if name not in _ACTION_OF})
    if strange:
        notes.add("MD916", phrase("notes.ops", names=", ".join(strange)[:200]))
    codes = np.array([_ACTION_OF.get(name, schema.UNKNOWN) for name in names] or [schema.UNKNOWN], np.int8)
    action = codes[op]
    allocs, frees = action == schema.ALLOC, action == schema.FREE_COMPLETED
    if (allocs & ((size < 0) | (size > MOST_BYTES))).any():
        raise ValueError("an allocation of more bytes than any device holds")
    size = np.where((size >= 0) & (size <= MOST_BYTES), size, 0)  # meaningless for other operations
    # An allocation of 0 bytes gets no memory, and its free does nothing: neither is a tensor. Neither is a free before
    # its allocation.
    sizes, newest = _sizes(identity, size, allocs, frees)
    is_tensor = (allocs | (frees & newest)) & (sizes > 0)
    skipped = int((frees & ~newest).sum())
    if skipped:
        notes.add("MD916", phrase("notes.frees", count=skipped))
    uses = action == schema.ACTION_CODES["record_stream"]
    if (identity[allocs] < 0).any():  # below 0 means "none"
        identity = np.where(allocs | frees | uses, np.unique(identity, return_inverse=True)[1], identity)
    addr = np.where(is_tensor | ~(allocs | frees), identity, -1)
    return RawDevice(
        device=0,
        action=action,
        addr=np.where(addr >= 0, addr, -1),
        size=sizes,
        stream=columns["stream"],
        has_addresses=False,
        capacity_bytes=total if 0 < total <= MOST_BYTES else None,
    )


def _sizes(identity: Array, size: Array, allocs: Array, frees: Array) -> tuple[Array, Array]:
    """Returns sizes, with the size of each free taken from the newest earlier allocation of the same id.

    Also returns where there is such an allocation.
    """
    rows = np.flatnonzero(allocs | frees)
    order = rows[np.lexsort((rows, identity[rows]))]
    place = np.where(allocs[order], np.arange(len(order)), -1)
    last = np.maximum.accumulate(place) if len(place) else place
    known = (last >= 0) & (identity[order[np.maximum(last, 0)]] == identity[order]) if len(order) else np.zeros(0, bool)
    filled = size.copy()
    mine = order[known & frees[order]]
    filled[mine] = size[order[last[known & frees[order]]]]
    found = allocs.copy()
    found[mine] = True
    return filled, found
