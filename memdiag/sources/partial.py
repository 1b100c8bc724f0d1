"""Builds traces from formats with less data than a snapshot: windows of a run, curves, lists of lifetimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.notes import Notes
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array, Table

_MOST = 1 << 60
_FREES = (schema.FREE_REQUESTED, schema.FREE_COMPLETED)


def unknown(count: int) -> Array:
    """Returns a curve that is unknown at all ``count`` events."""
    return np.full(count, -1, np.int64)


def build_partial(raw: RawTrace, *, hint: str, complete: bool | None, notes: Notes) -> Trace:
    """Builds a trace whose curves may begin in the middle of a run.

    Args:
        raw: The content of the file, without notes.
        hint: What to record instead, if the file is empty.
        complete: Whether the allocator was empty before the first event, or None if unknown.
        notes: Notes on the file.

    Raises:
        RefusedFile: No device has any event.
    """
    if not any(len(each.action) for each in raw.raws):
        raise RefusedFile(phrase("errors.no-memory-events", path=raw.path), hint)
    if any(schema.ALLOC in each.action and not np.isin(each.action, _FREES).any() for each in raw.raws):
        notes.add("MD912")
    raws = [_split_first_frees(dataclasses.replace(each, curves=_known(each.curves))) for each in raw.raws]
    trace = build_trace(dataclasses.replace(raw, raws=raws, notes=notes.list()))
    devices = tuple(
        dataclasses.replace(device, start={**device.start, **_start(each)})
        for device, each in zip(trace.devices, raws, strict=True)
    )
    return dataclasses.replace(trace, devices=devices, complete_from_start=complete)


def blanks_of(columns: Mapping[str, schema.Column], count: int) -> dict[str, Array]:
    """Returns ``count`` rows of a table without any value: -1, or False."""
    return {name: np.full(count, 0 if column.dtype == "bool" else -1) for name, column in columns.items()}


def state_of(device: int, size: Array, stack: Array) -> RawDevice:
    """Returns a device whose file lists live buffers at one moment, without addresses and without a history.

    Args:
        device: Index of the device.
        size: Bytes of each buffer.
        stack: Where it was allocated, -1 if unknown.
    """
    count = len(size)
    values = {
        "address": np.arange(count, dtype=np.int64),
        "size": size,
        "requested_size": size,
        "state": np.full(count, schema.ACTIVE_ALLOCATED),
        "stack": stack,
    }
    return RawDevice(
        device=device,
        action=np.empty(0, np.int8),
        addr=np.empty(0, np.int64),
        size=np.empty(0, np.int64),
        blocks=Table(schema.BLOCKS, blanks_of(schema.BLOCKS, count) | values),
        has_addresses=False,
    )


def _known(curves: Mapping[str, Array]) -> dict[str, Array]:
    """Returns curves with impossible values (negative, or more than any machine has) as unknown."""
    return {name: np.where((values < 0) | (values > _MOST), -1, values) for name, values in curves.items()}


def _split_first_frees(raw: RawDevice) -> RawDevice:
    """Adds a free request to each free of a tensor from before the window.

    These formats write one row per free. In a snapshot, a completed free without its request belongs to a block that
    was already waiting for a stream when the trace began. Here, it belongs to a tensor that was still in use.
    """
    known = np.flatnonzero(raw.addr >= 0)
    _, first = np.unique(raw.addr[known], return_index=True)
    rows = np.sort(known[first])
    rows = rows[raw.action[rows] == schema.FREE_COMPLETED]
    if not len(rows):
        return raw

    def insert(values: Array | None) -> Array | None:
        return None if values is None else np.insert(values, rows, values[rows], axis=0)

    inserted = rows + np.arange(len(rows))
    action = np.insert(raw.action, rows, schema.FREE_REQUESTED)
    curves = {name: np.insert(values, rows, values[rows]) for name, values in raw.curves.items()}
    if "active" in curves:  # still active until the next row
        active = curves["active"]
        active[inserted] = np.where(active[inserted] >= 0, active[inserted] + raw.size[rows], -1)
    return dataclasses.replace(
        raw,
        action=action,
        addr=np.insert(raw.addr, rows, raw.addr[rows]),
        size=np.insert(raw.size, rows, raw.size[rows]),
        stream=insert(raw.stream),
        time_us=insert(raw.time_us),
        stack=insert(raw.stack),
        pool=insert(raw.pool),
        category=insert(raw.category),
        curves=curves,
    )


def _start(raw: RawDevice) -> dict[str, int]:
    """Returns the bytes before the first event for curves recorded in the file, or -1 if unknown."""
    start = dict.fromkeys(raw.curves, -1)
    for name in ("allocated", "active"):
        values = raw.curves.get(name)
        if values is not None and len(values) and values[0] >= 0:
            change = {schema.ALLOC: -1, schema.FREE_COMPLETED: 1, schema.FREE_REQUESTED: int(name == "allocated")}.get(
                int(raw.action[0])
            )
            if change is not None:
                start[name] = max(int(values[0]) + change * int(raw.size[0]), -1)
    return start


def spans_table(starts: Array, ends: Array, which: Array) -> Table:
    """Returns annotations in order of time.

    Args:
        starts, ends: Microseconds for each span.
        which: Name index for each span.
    """
    count = len(which)
    name = np.concatenate((which, which))
    start = np.arange(2 * count) < count
    time = np.concatenate((starts, ends))
    # At the same time, an old span ends before a new one begins, and an empty one begins before it ends.
    rank = np.concatenate((np.ones(count, np.int8), np.where(ends > starts, 0, 2).astype(np.int8)))
    order = np.lexsort((rank, time))
    return Table(
        schema.ANNOTATIONS,
        {"name": name[order], "start": start[order], "device": np.full(2 * count, -1), "time_us": time[order]},
    )
