"""Converts the formats that memdiag reads to trees of plain Python objects and back.

A mutated tree reaches deeper into a reader than mutated bytes. A codec is a pair of functions. ``load`` may raise any
exception, because the bytes may already have been mutated.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import pickle
import pickletools
import random
import re
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memdiag.sources.protobuf_wire import fields

_SNAPSHOT_IN_PAGE = re.compile(rb'(?s)(.*?")(gA[A-Za-z0-9+/]+=*)(".*)')
_USAGE_RECORD = struct.Struct("<HIqqqqqqqbbBBBQQ")
_LARGEST = 1 << 20  # bytes; larger files are not converted to trees


class Codec(NamedTuple):
    """Converts bytes to a tree, and a tree to bytes; the random generator selects among equivalent encodings."""

    load: Callable[[bytes], Any]
    dump: Callable[[Any, random.Random], bytes]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a seed")


def load_pickle(data: bytes) -> Any:
    """Returns the data of a pickle that contains plain data only."""
    for opcode, argument, _ in pickletools.genops(data):
        if "PUT" in opcode.name and argument > len(data):
            raise ValueError("a memo bomb: Python's own unpickler would go for it")
    return _PlainUnpickler(io.BytesIO(data)).load()


def dump_pickle(tree: Any, chance: random.Random) -> bytes:
    """Returns a pickle of a random protocol, sometimes without a memo or compressed."""
    protocol, fast = chance.randrange(6), chance.random() < 0.1
    out = io.BytesIO()
    for number in (protocol, protocol + 3):
        out = io.BytesIO()
        pickler = pickle.Pickler(out, number)
        pickler.fast = fast
        pickler.dump(tree)
        if number >= 3 or b"_codecs" not in out.getvalue():  # before protocol 3, bytes are pickled as a function call
            break
    return gzip.compress(out.getvalue()) if chance.random() < 0.03 else out.getvalue()


def _load_page(data: bytes) -> Any:
    before, inside, after = _SNAPSHOT_IN_PAGE.fullmatch(data).groups()  # type: ignore[union-attr]
    return [before, load_pickle(base64.b64decode(inside)), after]


def _dump_page(tree: Any, chance: random.Random) -> bytes:
    before, inside, after = tree
    # Not bytes(before), which returns that many zeros for a number: possibly gigabytes.
    return b"".join((before, base64.b64encode(pickle.dumps(inside, chance.choice((2, 3, 4, 5)))), after))


def _load_json(data: bytes) -> Any:
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def _dump_json(tree: Any, chance: random.Random) -> bytes:
    text = json.dumps(tree, indent=chance.choice((None, None, 1)), ensure_ascii=chance.random() < 0.5, default=repr)
    data = text.encode("utf-8", "surrogatepass")
    return gzip.compress(data) if chance.random() < 0.1 else data


def _load_csv(data: bytes) -> Any:
    return list(csv.reader(io.StringIO(data.decode("utf-8"))))


def _dump_csv(tree: Any, chance: random.Random) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=chance.choice(("\n", "\r\n")), escapechar="\\")
    writer.writerows([str(cell) for cell in row] if isinstance(row, (list, tuple)) else [str(row)] for row in tree)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _load_database(data: bytes) -> Any:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = {}
    for name in names:
        cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - the name comes from memdiag's own seeds
        tables[name] = [[column[0] for column in cursor.description], *map(list, cursor)]
    connection.close()
    return tables


def _quoted(name: Any) -> str:
    return '"' + str(name).replace('"', '""').replace("\x00", "") + '"'


def _cell(value: Any) -> Any:
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else float(value)
    return value if value is None or isinstance(value, (str, float, bytes)) else repr(value)


def _dump_database(tree: Any, chance: random.Random) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"PRAGMA page_size = {chance.choice((512, 1024, 4096))}")
    for name, rows in tree.items():
        columns = [_quoted(column) for column in rows[0]]
        connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(columns)})")
        slots = ", ".join("?" * len(columns))
        for row in rows[1:]:
            cells = [_cell(cell) for cell in row][: len(columns)]
            cells += [None] * (len(columns) - len(cells))
            connection.execute(f"INSERT INTO {_quoted(name)} VALUES ({slots})", cells)  # noqa: S608 - quoted
    data = connection.serialize()
    connection.close()
    return data


def _load_arrays(data: bytes) -> Any:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: [archive[name].dtype.str, archive[name].tolist()] for name in archive.files}


def _dump_arrays(tree: Any, chance: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, (dtype, values) in tree.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.array(values, dtype), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())  # without a time stamp
    return out.getvalue()


def _load_lines(data: bytes) -> Any:
    return data.decode("utf-8").split("\n")


def _dump_lines(tree: Any, chance: random.Random) -> bytes:
    text = chance.choice(("\n", "\r\n")).join(str(line) for line in tree)
    return text.encode("utf-8", "surrogatepass")


_MESSAGES = (1, 2, 4, 5)  # fields of a profile that are messages


def _load_profile(data: bytes) -> Any:
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return [
        [number, _inner(value) if number in _MESSAGES and not isinstance(value, int) else _plain(value)]
        for number, value in fields(memoryview(data))
    ]


def _inner(data: memoryview) -> list[Any]:
    return [[number, _plain(value)] for number, value in fields(data)]


def _plain(value: int | memoryview) -> int | bytes:
    return value if isinstance(value, int) else bytes(value)


def _dump_profile(tree: Any, chance: random.Random) -> bytes:
    data = message(tree)
    return gzip.compress(data, mtime=0) if chance.random() < 0.5 else data


def message(tree: Any) -> bytes:
    """Returns a protocol buffer: pairs of a field and its number, bytes, or pairs of an inner message."""
    out = b""
    for number, value in tree:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value & (1 << 64) - 1)
        else:
            content = message(value) if isinstance(value, list) else bytes(value)
            out += _varint(number << 3 | 2) + _varint(len(content)) + content
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _load_usage(data: bytes) -> Any:
    size = _USAGE_RECORD.size
    return [list(_USAGE_RECORD.unpack_from(data, at)) for at in range(0, len(data) - size + 1, size)]


def _dump_usage(tree: Any, chance: random.Random) -> bytes:
    del chance
    return b"".join(_USAGE_RECORD.pack(*row) for row in tree)


PICKLE = Codec(load_pickle, dump_pickle)
PAGE = Codec(_load_page, _dump_page)
JSON = Codec(_load_json, _dump_json)
CSV = Codec(_load_csv, _dump_csv)
DATABASE = Codec(_load_database, _dump_database)
ARRAYS = Codec(_load_arrays, _dump_arrays)
LINES = Codec(_load_lines, _dump_lines)
PROFILE = Codec(_load_profile, _dump_profile)
USAGE = Codec(_load_usage, _dump_usage)

CODECS: dict[str, Codec] = {
    "torch-snapshot": PICKLE,
    "memory-viz-html": PAGE,
    "event-npz": ARRAYS,
    "ascend-db": DATABASE,
    "msmemscope-db": DATABASE,
    "msmemscope-csv": CSV,
    "ascend-csv": CSV,
    "ascend-memory-usage": USAGE,
    "lifespans-csv": CSV,
    "rmm-csv": CSV,
    "jax-profile": PROFILE,
    "bfc-dump": LINES,
    "nccl-log": LINES,
    "hccl-log": LINES,
    "memory-timeline": JSON,
    "chrome-trace": JSON,
}


def tree_of(source: str, data: bytes) -> Any:
    """Returns the tree in ``data``; None if the mutated data no longer contains one."""
    if len(data) > _LARGEST:
        return None
    try:
        return CODECS[source].load(data)
    except Exception:  # noqa: BLE001 - these libraries may raise anything for mutated bytes
        return None


def bytes_of(source: str, tree: Any, chance: random.Random) -> bytes | None:
    """Returns ``tree`` in the format of ``source``; None if the format cannot represent it."""
    try:
        return CODECS[source].dump(tree, chance)
    except Exception:  # noqa: BLE001 - a mutated tree may not fit the format
        return None


def write_temporary(data: bytes, folder: Path, name: str) -> Path:
    """Writes one input to a file and returns its path."""
    path = folder / name
    path.write_bytes(data)
    return path


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder for inputs, in memory if the system has such a file system."""
    place = Path("/dev/shm")  # noqa: S108 - the folder is only a parent for a new temporary one
    return tempfile.TemporaryDirectory(prefix="memdiag-fuzz-", dir=place if place.is_dir() else None)
