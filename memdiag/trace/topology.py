"""The ranges of a device at one moment, and the split of its bytes, computed directly from lifecycles and pieces.

This is slower and simpler than ``heap`` (which walks all events) and serves single moments; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memdiag.trace.table import Array, Table


@dataclass(frozen=True)
class Topology:
    """Every range of one device's memory at one event, in address order.

    Attributes:
        at: The state is after this event, or before the first event if -1.
        segments: Columns start, size (bytes), group, expandable: as a snapshot at that moment would list them.
        blocks: Columns segment (row above), address, size (bytes), tensor (row in Tensors, -1: free), pending (bool:
            freed, waiting for a stream). Free blocks are the maximal gaps between the others.
    """

    at: int
    segments: Mapping[str, Array]
    blocks: Mapping[str, Array]


def topology_at(pieces: Table, tensors: Table, at: int) -> Topology:
    """Returns segments and blocks of a device after event ``at`` (-1: before the first event)."""
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

    rows = np.flatnonzero((tensors.alloc_at <= at) & (tensors.free_completed_at > at) & (tensors.group >= 0))
    rows = rows[np.argsort(tensors.addr[rows], kind="stable")]
    address, length = tensors.addr[rows], tensors.block_bytes[rows]
    home = np.searchsorted(segments["start"], address, side="right") - 1
    inside = np.zeros(len(rows), bool)
    if len(first):
        inside = (home >= 0) & (address + length <= segments["start"][home] + segments["size"][home])
    rows, address, length, home = rows[inside], address[inside], length[inside], home[inside]
    # Free blocks are the gaps: from the end of each block, and from the start of each segment, to the next block.
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
