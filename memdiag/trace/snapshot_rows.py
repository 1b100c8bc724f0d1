"""Rows of a snapshot, from columns: ``schema.FIELDS`` describes how each field is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import BOXED, LINES, NUMBER, PAIR, SIZE, TEXT, WORD, Column
from memdiag.trace.snapshot_fields import columns_of, written_of
from memdiag.trace.table import Array, Table
from memdiag.trace.tracebacks import lines_of

_OMITTED = {NUMBER, SIZE, LINES}  # kinds of fields that are omitted if no row has a value


def rows_of(
    level: str, columns: Mapping[str, Array], strings: Sequence[str], frames: Callable[[int], Any]
) -> list[dict[str, Any]]:
    """Returns the rows of a level as PyTorch writes them; fields without a column are left to the caller.

    Args:
        level: ENTRY, SEGMENT or BLOCK.
        columns: Columns of equal length, by name; a field whose column is missing is omitted.
        strings: Texts that TEXT columns index.
        frames: Returns the frames of a stack; -1: unknown.
    """
    tracebacks: dict[int, list[str]] = {-1: []}
    found: dict[str, Sequence[Any]] = {}
    count = max((len(column) for column in columns.values()), default=0)
    for field in written_of(level):
        if field.constant is not None and field.column not in columns:
            found[field.name] = [field.constant] * count
        elif any(name not in columns for name in columns_of(field)):
            continue
        elif field.meaning and field.kind in _OMITTED and (columns[field.column] == field.missing).all():
            continue  # the snapshot had no such key
        elif field.kind == PAIR:
            found[field.name] = list(zip(*(columns[name].tolist() for name in columns_of(field)), strict=True))
        else:
            values = columns[field.column].tolist()
            if field.kind == WORD:
                values = [field.words[value] for value in values]
            elif field.kind == BOXED:
                values = [frames(value) for value in values]
            elif field.kind == TEXT:
                values = [strings[value] if value >= 0 else field.constant or "" for value in values]
            elif field.kind == LINES:
                for value in set(values) - tracebacks.keys():
                    tracebacks[value] = lines_of([(f["filename"], f["line"], f["name"]) for f in frames(value)])
                values = [tracebacks[value] for value in values]
            found[field.name] = values
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def final_tables(device: DeviceTrace) -> tuple[Table, Table]:
    """Returns the segments and blocks after the last event, free blocks included.

    Columns that only the file knows are taken from its own segments and blocks, by address.
    """
    topology, groups, tensors = device.topology(device.num_events - 1), device.groups, device.tensors
    pieces, blocks = topology.segments, topology.blocks
    group, home, size = pieces["group"], blocks["segment"], blocks["size"]
    is_free = blocks["tensor"] < 0
    tensor = np.maximum(blocks["tensor"], 0)
    none = np.zeros(len(tensor), np.int64)
    requested = np.where(is_free, 0, tensors.requested_bytes[tensor] if len(tensors) else none)
    used = np.where(is_free, 0, size)

    def total(values: Array) -> Array:
        sums = np.zeros(len(group), np.int64)
        np.add.at(sums, home, values)
        return sums

    in_use = np.where(blocks["pending"], schema.ACTIVE_PENDING_FREE, schema.ACTIVE_ALLOCATED)
    segments = {
        "address": pieces["start"],
        "total_size": pieces["size"],
        "allocated_size": total(np.where(blocks["pending"], 0, used)),
        "active_size": total(used),
        "requested_size": total(requested),
        "stream": groups.stream[group],
        "small": groups.small[group],
        "pool_major": groups.pool_major[group],
        "pool_minor": groups.pool_minor[group],
        "expandable": pieces["expandable"],
        "stack": np.full(len(group), -1),
    }
    own = {
        "segment": home,
        "address": blocks["address"],
        "size": size,
        "requested_size": requested,
        "state": np.where(is_free, schema.INACTIVE, in_use),
        "stack": np.where(is_free, -1, tensors.stack[tensor] if len(tensors) else -1),
    }
    return completed(schema.SEGMENTS, segments, device.segments), completed(schema.BLOCKS, own, device.blocks)


def completed(columns: Mapping[str, Column], known: Mapping[str, Array], read: Table | None = None) -> Table:
    """Returns a table with the columns that ``known`` lacks, from the row at the same address, else -1."""
    address = known["address"]
    found = dict(known)
    for name, column in columns.items():
        if name in known:
            continue
        values = np.full(len(address), -1 if column.dtype != "bool" else 0, column.dtype)
        if read is not None and len(read):
            order = np.argsort(read.address, kind="stable")
            place = order[np.minimum(np.searchsorted(read.address[order], address), len(order) - 1)]
            values = np.where(read.address[place] == address, read[name][place], values)
        found[name] = values
    return Table(columns, found)
