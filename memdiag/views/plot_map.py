"""The layout of a device's memory at one moment: segments in rows, their tensors and free ranges with causes.

Segments of one pool and stream are adjacent, the largest first. Small ones share a row; one that is longer than a row
continues in the next. Neighbours of one kind are merged. If they are narrower than a column of pixels, the kind with
most of the column represents all of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.places import group_name, lifetime_name, moment_name
from memdiag.errors import MemdiagError
from memdiag.results.plots import MapPlot, MapRow
from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import LIFETIMES
from memdiag.trace.table import Array
from memdiag.trace.topology import Topology
from memdiag.units import MIB, format_bytes
from memdiag.views.heap import CAUSES, FreeRanges, free_ranges
from memdiag.views.plot_frame import Ask, frame_of, need_addresses
from memdiag.views.plot_lifetimes import ORDER

PENDING = "pending"
_ROWS = 40
_FEWEST_ROWS = 4
_MOST_ROWS = 1000  # number to examine
_MOST_DOUBLINGS = 40
_GAP = 0.004  # of a row, between two segments
_MOST_GROUPS = 12  # named ones; the others share the last rows
_MOST_PIECES = 20_000


def map_of(trace: Trace, device: DeviceTrace, ask: Ask) -> MapPlot:
    """Returns the map of a device's memory.

    Raises:
        MemdiagError: The file has no addresses, the moment is not in it, or nothing was reserved then.
    """
    need_addresses(trace, device, "map")
    (view,) = Context(at=ask.at, device=device.device).views(trace)
    topology = device.topology(view.at)
    if not len(topology.segments["start"]):
        raise MemdiagError(
            phrase("plots.no-memory", path=trace.path, device=str(device.device)), phrase("plots.no-memory.hint")
        )
    kinds, kind, start, size, home = _blocks(trace, device, topology)
    row_bytes, place, names = _laid_out(device, topology)
    offset = place[home] + start - topology.segments["start"][home]
    amounts = np.bincount(kind, size.astype(np.float64), len(kinds)).astype(np.int64)
    pieces = _pieces(kind, offset, size, row_bytes, ask.columns)
    segments = _cut(place, topology.segments["size"], row_bytes)
    by_row = [segments[segments[:, 0] == row] for row in range(int(segments[:, 0].max()) + 1)]
    held = device.usage_at(view.at)["reserved"]
    reserved = format_bytes(held if held >= 0 else int(topology.segments["size"].sum()))
    where = moment_name(device, view.at)
    has_lifetimes = bool(device.tensors.lifetime.any())
    notes = () if has_lifetimes else (phrase("plots.note.no-lifetimes"),)
    frame = frame_of(trace, device, device.num_events + 1, notes)
    facts = (
        frame.facts[0],
        where,
        phrase("plots.segments", bytes=reserved, count=len(topology.segments["start"])),
        *frame.facts[1:],
    )
    return MapPlot(
        frame=replace(frame, facts=facts),
        row_bytes=row_bytes,
        rows=tuple(
            MapRow(names.get(row, ()), tuple((low, low + long) for _, low, long in rows.tolist()))
            for row, rows in enumerate(by_row)
        ),
        pieces={name: _rows(pieces[pieces[:, 3] == code]) for code, name in enumerate(kinds)},
        amounts=tuple(
            (name, _name(name, has_lifetimes=has_lifetimes), int(amounts[code]))
            for code, name in enumerate(kinds)
            if amounts[code]
        ),
    )


def _blocks(
    trace: Trace, device: DeviceTrace, topology: Topology
) -> tuple[tuple[str, ...], Array, Array, Array, Array]:
    """Returns the kinds, and the kind (index), address, size and segment of each block; free blocks by cause."""
    kinds = (*ORDER, PENDING, *CAUSES)
    blocks, lifetime = topology.blocks, device.tensors.lifetime
    order = np.array([kinds.index(name) for name in LIFETIMES])
    tensor = blocks["tensor"]
    kind = order[lifetime[np.maximum(tensor, 0)]] if len(lifetime) else np.zeros(len(tensor), np.int64)
    kind = np.where(blocks["pending"], kinds.index(PENDING), kind)
    free = free_ranges(device, topology, trace.layout.large_segment)
    pages = _whole_pages(device, topology, free, trace.layout.large_segment)
    kind[free.block] = len(ORDER) + 1 + free.cause
    names = ("address", "size", "segment")
    # Memory that a retry releases is cache, even if the rest of the range is not.
    cut = [np.concatenate((blocks[name], pages[name], pages[f"{name}_after"])) for name in names]
    kind = np.concatenate((kind, np.full(len(pages["address"]), len(ORDER) + 1), kind[pages["block"]]))
    cut[1][pages["block"]] = pages["address"] - blocks["address"][pages["block"]]
    kept = cut[1] > 0
    return kinds, kind[kept], cut[0][kept], cut[1][kept], cut[2][kept]


def _whole_pages(device: DeviceTrace, topology: Topology, free: FreeRanges, large_page: int) -> dict[str, Array]:
    """Returns the parts of free ranges that a retry releases (address, size, segment), and the remainder after each."""
    some = free.whole_bytes > 0
    block, size = free.block[some], free.whole_bytes[some]
    blocks, segments = topology.blocks, topology.segments
    home, start = blocks["segment"][block], blocks["address"][block]
    small = (
        np.asarray(device.groups.small, bool)[segments["group"][home]]
        if len(device.groups)
        else np.zeros(len(block), bool)
    )
    page = np.where(small, SMALL_SEGMENT, large_page)
    first = start + np.where(size == blocks["size"][block], 0, (segments["start"][home] - start) % page)
    after = first + size
    return {
        "block": block,
        "address": first,
        "size": size,
        "segment": home,
        "address_after": after,
        "size_after": start + blocks["size"][block] - after,
        "segment_after": home,
    }


def _name(kind: str, *, has_lifetimes: bool) -> str:
    if kind in LIFETIMES:
        return lifetime_name(LIFETIMES.index(kind)) or phrase("plots.live.unknown" if has_lifetimes else "plots.live")
    if kind == PENDING:
        return phrase("plots.waiting")
    return phrase("plots.free", part=vocabulary.name("part", kind))


def _laid_out(device: DeviceTrace, topology: Topology) -> tuple[int, Array, dict[int, tuple[str, ...]]]:
    """Returns the bytes of a row, the start of each segment, and the names of rows that begin a pool.

    Starts are in bytes, with the rows concatenated.
    """
    segments = topology.segments
    sums = np.bincount(segments["group"] + 1, segments["size"].astype(np.float64), len(device.groups) + 1)
    by_size = np.argsort(-sums, kind="stable") - 1
    rank = np.empty(len(sums), np.int64)
    rank[by_size + 1] = np.minimum(np.arange(len(sums)), _MOST_GROUPS)
    band = rank[segments["group"] + 1]
    order = np.lexsort((segments["start"], -segments["size"], band))
    row_bytes = _row_bytes(segments["size"][order], band[order])
    places, _, begins = _shelve(segments["size"][order], band[order], row_bytes)
    place = np.empty(len(order), np.int64)
    place[order] = places
    names = {
        row: (phrase("plots.other-pools"),) if code == _MOST_GROUPS else _pool(device, int(by_size[code]))
        for code, row in begins.items()
    }
    return row_bytes, place, names


def _pool(device: DeviceTrace, group: int) -> tuple[str, ...]:
    named = group_name(device, group)
    if group < 0:
        return (named,)
    pool, stream = (cast("str", named.values[name]) for name in ("pool", "stream"))
    blocks = phrase("plots.small-blocks" if device.groups["small"][group] else "plots.large-blocks")
    is_private = bool(device.groups["pool_major"][group] or device.groups["pool_minor"][group])
    return (pool, blocks, stream) if is_private else (blocks, stream, pool)


def _row_bytes(sizes: Array, bands: Array) -> int:
    """Returns the bytes of a row: the least that fits the largest segment with few enough rows.

    Huge segments take several.
    """
    wide = [size for k in range(_MOST_DOUBLINGS) for size in (2 * MIB << k, 3 * MIB << k)]
    rows = {
        size: _shelve(sizes, bands, size)[1]
        for size in wide
        if size <= 4 * int(sizes.sum()) and sizes.sum() <= _MOST_ROWS * size
    }
    few = [size for size, number in rows.items() if number <= _ROWS] or [max(wide)]
    whole = [size for size in few if size >= int(sizes.max())]
    if whole and rows[whole[0]] >= _FEWEST_ROWS:
        return whole[0]
    return few[0]


def _shelve(sizes: Array, bands: Array, row_bytes: int) -> tuple[list[int], int, dict[int, int]]:
    """Returns the start of each segment, its number of rows, and the first row of each band; each band begins a row."""
    gap = int(row_bytes * _GAP)
    places, begins, at, last = [], {}, 0, -1
    for size, band in zip(sizes.tolist(), bands.tolist(), strict=True):
        if band != last:
            at = -(-at // row_bytes) * row_bytes
            begins[band], last = at // row_bytes, band
        elif at % row_bytes and at % row_bytes + size > row_bytes:
            at = -(-at // row_bytes) * row_bytes
        places.append(at)
        at += size + (gap if (at + size) % row_bytes else 0)
    return places, -(-at // row_bytes), begins


def _cut(offset: Array, size: Array, row_bytes: int, *more: Array) -> Array:
    """Returns the ranges cut at row ends: columns row, start, length, and ``more``."""
    first, last = offset // row_bytes, (offset + size - 1) // row_bytes
    times = last - first + 1
    piece = np.repeat(np.arange(len(offset)), times)
    row = np.arange(len(piece)) - np.repeat(np.cumsum(times) - times, times) + first[piece]
    low = np.maximum(offset[piece], row * row_bytes)
    high = np.minimum(offset[piece] + size[piece], (row + 1) * row_bytes)
    return np.stack((row, low - row * row_bytes, high - low, *(column[piece] for column in more)), axis=1)


def _rows(pieces: Array) -> tuple[tuple[int, int, int], ...]:
    """Returns row, start and length of each range as plain integers."""
    return tuple((row, start, size) for row, start, size, _ in pieces.tolist())


def _pieces(kind: Array, offset: Array, size: Array, row_bytes: int, columns: int) -> Array:
    """Returns the ranges to draw: columns row, start, length, kind."""
    order = np.argsort(offset, kind="stable")
    kind, offset, size = kind[order], offset[order], size[order]
    new = np.append(True, (kind[1:] != kind[:-1]) | (offset[:-1] + size[:-1] != offset[1:]))[: len(kind)]
    first = np.flatnonzero(new)
    cut = (
        _cut(offset[first], np.add.reduceat(size, first), row_bytes, kind[first])
        if len(first)
        else np.empty((0, 4), np.int64)
    )
    if len(cut) <= _MOST_PIECES:
        return cut
    # Too many to draw individually: columns of pixels, each with the kind that has most of it.
    fine = _cut(cut[:, 0] * row_bytes + cut[:, 1], cut[:, 2], max(row_bytes // columns, 1), cut[:, 3])
    width, kinds = max(row_bytes // columns, 1), int(kind.max()) + 1
    cell, index = np.unique(fine[:, 0], return_inverse=True)
    most = np.bincount(index * kinds + fine[:, 3], fine[:, 2], len(cell) * kinds).reshape(-1, kinds).argmax(axis=1)
    begin = np.flatnonzero(np.append(True, (most[1:] != most[:-1]) | (cell[1:] != cell[:-1] + 1)))
    end = np.append(begin[1:], len(cell)) - 1
    return _cut(cell[begin] * width, (cell[end] - cell[begin] + 1) * width, row_bytes, most[begin])
