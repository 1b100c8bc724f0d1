"""The split of a device's free bytes at one moment, relative to a request (docs/fragmentation.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def num_before_a_gap(device: DeviceTrace, rows: Array) -> int:
    """Returns how many of the given tensors were directly before free memory of their segment when the trace began."""
    blocks = device.topology(-1).blocks
    mine = np.flatnonzero(np.isin(blocks["tensor"][:-1], rows))
    return int(((blocks["tensor"][mine + 1] < 0) & (blocks["segment"][mine + 1] == blocks["segment"][mine])).sum())


@dataclass(frozen=True)
class Split:
    """Free bytes relative to a request (docs/fragmentation.md), and the largest free range of its pool and stream."""

    cache: int
    stranded: int
    foreign: int
    largest_free: int


def whole_bytes(
    segment_start: Array, segment_size: Array, start: Array, size: Array, expandable: Array, page: Array
) -> Array:
    """Returns the bytes of free ranges that a retry releases: whole segments, whole pages of expandable segments."""
    all_of_it = (start == segment_start) & (size == segment_size)
    pages = (start + size - segment_start) // page * page - -(-(start - segment_start) // page) * page
    return np.where(all_of_it, size, np.where(expandable, np.maximum(pages, 0), 0))


def split_at(device: DeviceTrace, at: int, request: int, group: int, large_page: int) -> Split:
    """Returns the split of the free bytes after event ``at``, relative to a rounded request in ``group``.

    A group of -1 stands for a pool without memory.
    """
    topology = device.topology(at)
    free = np.flatnonzero(topology.blocks["tensor"] < 0)
    home = topology.blocks["segment"][free]
    start, size = topology.blocks["address"][free], topology.blocks["size"][free]
    segments = topology.segments
    small = (
        np.asarray(device.groups.small, bool)[segments["group"][home]]
        if len(device.groups)
        else np.zeros(len(free), bool)
    )
    page = np.where(small, SMALL_SEGMENT, large_page)
    whole = whole_bytes(
        segments["start"][home], segments["size"][home], start, size, segments["expandable"][home], page
    )
    mine = segments["group"][home] == group
    fits = mine & (size >= request)
    cache = int(whole.sum() + (size - whole)[fits].sum())
    stranded = int((size - whole)[mine & ~fits].sum())
    return Split(cache, stranded, int(size.sum()) - cache - stranded, int(size[mine].max(initial=0)))
