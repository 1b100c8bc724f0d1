"""The columns that a source passes on, exactly as in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from memdiag.trace import schema
from memdiag.trace.card import Card
from memdiag.trace.table import Array, Table


@dataclass(frozen=True)
class RawDevice:
    """One device's columns.

    Attributes:
        device: Device index.
        action: int8 codes (``schema.ACTIONS``), in the order of the allocator.
        addr: int64 address, or identity of the tensor if ``has_addresses`` is False; -1 for a source with curves only.
        size: int64 bytes (requested bytes for alloc and free).
        stream, time_us, stack: As in ``schema.EVENTS``; None if unknown for all events.
        pool: int64 (num_events, 2) pool ids, -1 where unknown; None if the file has none.
        segments, blocks: The file's final state, or None.
        has_addresses: Whether addresses are known.
        curves: Bytes after each event as recorded in the file ("reserved", "allocated", "active", "requested"), used
            instead of sums over the events; -1 where unknown.
        category: int8 per event (of an alloc), index into ``schema.CATEGORIES``; None if the file has none.
        capacity_bytes: Bytes of the device, or None if unknown.
        more: Columns of ``schema.EVENTS`` that only a snapshot has (``snapshot_fields.MORE_COLUMNS``).
        card: Other facts about the device memory.
        samples: Memory of the device over time (``schema.SAMPLES``).
        expandable: Whether the allocator of this device used expandable segments, if it differs from the layout of the
            trace; None if not.
    """

    device: int
    action: Array
    addr: Array
    size: Array
    stream: Array | None = None
    time_us: Array | None = None
    stack: Array | None = None
    pool: Array | None = None
    segments: Table | None = None
    blocks: Table | None = None
    has_addresses: bool = True
    curves: Mapping[str, Array] = field(default_factory=dict)
    category: Array | None = None
    capacity_bytes: int | None = None
    more: Mapping[str, Array] = field(default_factory=dict)
    card: Card = field(default_factory=Card)
    samples: Table = field(default_factory=lambda: Table.empty(schema.SAMPLES))
    expandable: bool | None = None


def events_from_lifetimes(alloc_time: Array, free_time: Array, size: Array) -> dict[str, Array]:
    """Turns lifetimes into events: columns action, addr (row of the lifetime), size, time.

    Args:
        alloc_time: Time of allocation in any unit; NaN and negative values are not allowed.
        free_time: Time of free; a value below ``alloc_time`` (or NaN) means "never freed".
        size: Bytes.

    Frees precede allocations of the same time (half-open intervals); otherwise rows keep their order. An empty lifetime
    (freed at the time of its allocation) keeps its alloc before its free.
    """
    rows = np.arange(len(size))
    dies = np.flatnonzero(~(np.isnan(free_time.astype(float)) | (free_time < alloc_time)))
    empty = free_time[dies] == alloc_time[dies]
    time = np.concatenate((alloc_time, free_time[dies]))
    # Order within one time: 0 frees of earlier tensors, 1 allocs, 2 frees of tensors allocated at this time.
    rank = np.concatenate((np.ones(len(rows), np.int8), np.where(empty, 2, 0).astype(np.int8)))
    row = np.concatenate((rows, rows[dies]))
    action = np.concatenate(
        (np.full(len(rows), schema.ALLOC, np.int8), np.full(len(dies), schema.FREE_COMPLETED, np.int8))
    )
    order = np.lexsort((row, rank, time))
    return {"action": action[order], "addr": row[order], "size": np.asarray(size)[row[order]], "time": time[order]}
