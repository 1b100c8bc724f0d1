"""The allocator state at one event of a recording: the state with which a replay begins.

Ranges are the segments that a snapshot at that moment would list; in an expandable segment, each mapped piece. The
recording does not show which pieces share a reserved range of addresses. If pages are later mapped below all pieces of
a lane, the range begins at those pages.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.workload import Start
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def start_at(device: DeviceTrace, at: int, handles: Array, pools: tuple[tuple[int, int], ...]) -> Start:
    """Returns the allocator state of ``device`` after event ``at`` (-1: before the first event).

    Args:
        device: A device with addresses.
        at: The event.
        handles: Handles of the streams, in unsigned order.
        pools: Pool ids.
    """
    topology = device.topology(at)
    segments, blocks = topology.segments, topology.blocks
    group, groups = segments["group"], device.groups
    kept = np.flatnonzero(blocks["tensor"] >= 0)
    tensor = blocks["tensor"][kept]
    home = blocks["segment"][kept]
    number = {pool: index for index, pool in enumerate(pools)}
    pool_of = np.array(
        [number[int(a), int(b)] for a, b in zip(groups.pool_major, groups.pool_minor, strict=True)] or [0], np.int32
    )
    stream_of = np.searchsorted(handles, groups.stream.view(np.uint64)) if len(groups) else np.zeros(1, np.int64)
    small_of = groups.small if len(groups) else np.zeros(1, bool)
    order = _order(device, at, segments["start"])
    base, beginning = _beginnings(device, at, segments["start"], segments["expandable"].astype(bool), group)
    owner = np.append(np.arange(len(group)), beginning)  # pieces of zero bytes mark the beginnings of ranges
    group = group[owner]
    return Start(
        base=np.append(segments["start"], base).astype(np.int64),
        size=np.append(segments["size"], np.zeros(len(base))).astype(np.int64),
        pool=pool_of[group],
        stream=stream_of[group].astype(np.int32),
        small=small_of[group],
        expandable=segments["expandable"].astype(bool)[owner],
        order=order[owner],
        block_range=home.astype(np.int32),
        block_off=(blocks["address"][kept] - segments["start"][home]).astype(np.int64),
        block_size=blocks["size"][kept].astype(np.int64),
        block_tensor=tensor.astype(np.int32),
        block_requested=device.tensors.requested_bytes[tensor].astype(np.int64),
        block_pending=blocks["pending"][kept].astype(bool),
    )


def reach_below(device: DeviceTrace) -> int:
    """Returns the distance below the lowest known piece of an expandable segment that still belongs to its range.

    A range is larger than the device, and therefore larger than all memory that was ever reserved.
    """
    return int(device.usage.reserved.max(initial=0)) * 9 // 8


def _beginnings(device: DeviceTrace, at: int, start: Array, expandable: Array, group: Array) -> tuple[Array, Array]:
    """Returns the beginnings of ranges whose lowest piece at ``at`` is not the lowest mapped later, and its row."""
    regions = device.regions
    later = np.flatnonzero(regions.expandable & (regions.opened_at > at))
    reach = reach_below(device)
    bases: list[int] = []
    rows: list[int] = []
    for index in np.unique(group[expandable]).tolist():
        pieces = np.flatnonzero(expandable & (group == index))
        lowest = int(pieces[np.argmin(start[pieces])])
        mapped = regions.start[later[regions.group[later] == index]]
        mapped = mapped[(mapped < start[lowest]) & (mapped > start[lowest] - reach)]
        if len(mapped):
            bases.append(int(mapped.min()))
            rows.append(lowest)
    return np.array(bases, np.int64), np.array(rows, np.int64)


def _order(device: DeviceTrace, at: int, start: Array) -> Array:
    """Returns the order in which ranges were reserved.

    Ranges from before the trace come first, by address, because addresses of drivers mostly increase.
    """
    regions = device.regions
    held = np.flatnonzero((regions.opened_at <= at) & (regions.closed_at > at))
    held = held[np.argsort(regions.start[held], kind="stable")]
    opened = np.full(len(start), -1, np.int64)
    if len(held):
        row = held[np.minimum(np.searchsorted(regions.start[held], start), len(held) - 1)]
        opened = np.where(regions.start[row] == start, regions.opened_at[row], -1)
    order = np.empty(len(start), np.int64)
    order[np.lexsort((start, opened))] = np.arange(len(start))
    return order
