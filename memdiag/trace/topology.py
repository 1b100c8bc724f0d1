"""The ranges of a device at one moment, and the split of its bytes, worked out afresh from lifecycles and pieces.

This is slower and plainer than ``heap`` (which walks all events) and serves single moments; tests hold one against the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace.layout import SMALL_SEGMENT
from memdiag.trace.model import DeviceTrace, Topology
from memdiag.trace.table import Array


def topology_at(device: DeviceTrace, at: int) -> Topology:
    """Returns segments and blocks after event ``at`` (-1: before the first)."""
    pieces = device.regions
    held = np.flatnonzero((pieces.opened_at <= at) & (pieces.closed_at > at))
    held = held[np.argsort(pieces.start[held], kind="stable")]
    start, size = pieces.start[held], pieces.size[held]
    group, segment, expandable = pieces.group[held], pieces.segment[held], pieces.expandable[held]
    new = np.ones(len(held), bool)
    if len(held) > 1:
        touches = (start[:-1] + size[:-1] == start[1:]) & (group[:-1] == group[1:])
        same = (expandable[:-1] & expandable[1:]) | ((segment[:-1] == segment[1:]) & (segment[1:] >= 0))
        new[1:] = ~(touches & same)
    first = np.flatnonzero(new)
    total = np.add.reduceat(size, first) if len(first) else np.empty(0, np.int64)
    segments = {"start": start[first], "size": total, "group": group[first], "expandable": expandable[first]}

    tensors = device.tensors
    rows = np.flatnonzero((tensors.alloc_at <= at) & (tensors.free_completed_at > at) & (tensors.group >= 0))
    rows = rows[np.argsort(tensors.addr[rows], kind="stable")]
    address, length = tensors.addr[rows], tensors.block_bytes[rows]
    home = np.searchsorted(segments["start"], address, side="right") - 1
    inside = np.zeros(len(rows), bool)
    if len(first):
        inside = (home >= 0) & (address + length <= segments["start"][home] + segments["size"][home])
    rows, address, length, home = rows[inside], address[inside], length[inside], home[inside]
    # Free blocks are the gaps: from the end of each block, and of each segment's start, to what comes next.
    edge_start = np.concatenate((segments["start"], address + length))
    edge_home = np.concatenate((np.arange(len(first)), home))
    next_block = np.searchsorted(address, edge_start)
    limit = segments["start"][edge_home] + segments["size"][edge_home]
    if len(address):
        following = address[np.minimum(next_block, len(address) - 1)]
        limit = np.where(next_block < len(address), np.minimum(limit, following), limit)
    gaps = np.flatnonzero(limit > edge_start)
    blocks = {
        "segment": np.concatenate((home, edge_home[gaps])),
        "address": np.concatenate((address, edge_start[gaps])),
        "size": np.concatenate((length, (limit - edge_start)[gaps])),
        "tensor": np.concatenate((rows, np.full(len(gaps), -1))),
        "pending": np.concatenate((tensors.free_requested_at[rows] <= at, np.zeros(len(gaps), bool))),
    }
    order = np.argsort(blocks["address"], kind="stable")
    return Topology(at, segments, {name: values[order] for name, values in blocks.items()})


def num_before_a_gap(device: DeviceTrace, rows: Array) -> int:
    """Returns how many of the given tensors stood right before free memory of their segment when the trace began."""
    blocks = topology_at(device, -1).blocks
    mine = np.flatnonzero(np.isin(blocks["tensor"][:-1], rows))
    return int(((blocks["tensor"][mine + 1] < 0) & (blocks["segment"][mine + 1] == blocks["segment"][mine])).sum())


@dataclass(frozen=True)
class Split:
    """Free bytes as a request sees them (docs/fragmentation.md), and the largest free range of its pool and stream."""

    cache: int
    stranded: int
    foreign: int
    largest_free: int


def whole_bytes(segment_start: Array, segment_size: Array, start: Array, size: Array, expandable: Array, page: Array) -> Array:
    """Returns the bytes of free ranges that a retry gives back: all of a whole segment, the whole pages of an expandable one."""
    all_of_it = (start == segment_start) & (size == segment_size)
    pages = (start + size - segment_start) // page * page - -(-(start - segment_start) // page) * page
    return np.where(all_of_it, size, np.where(expandable, np.maximum(pages, 0), 0))


def split_at(device: DeviceTrace, at: int, request: int, group: int, large_page: int) -> Split:
    """Returns the split of the free bytes after event ``at`` as a rounded request in ``group`` (-1: a pool that has nothing) sees them."""
    topology = device.topology(at)
    free = np.flatnonzero(topology.blocks["tensor"] < 0)
    home = topology.blocks["segment"][free]
    start, size = topology.blocks["address"][free], topology.blocks["size"][free]
    segments = topology.segments
    small = np.asarray(device.groups.small, bool)[segments["group"][home]] if len(device.groups) else np.zeros(len(free), bool)
    page = np.where(small, SMALL_SEGMENT, large_page)
    whole = whole_bytes(segments["start"][home], segments["size"][home], start, size, segments["expandable"][home], page)
    mine = segments["group"][home] == group
    fits = mine & (size >= request)
    cache = int(whole.sum() + (size - whole)[fits].sum())
    stranded = int((size - whole)[mine & ~fits].sum())
    return Split(cache, stranded, int(size.sum()) - cache - stranded, int(size[mine].max(initial=0)))
