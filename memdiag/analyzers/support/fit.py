"""Fit of a request into reserved memory, and the live tensors that block it.

The allocator serves a request from one free range of the same pool and stream. Free bytes in several blocks do not add
up, since live tensors separate them. This module finds the fewest live bytes that would have to be freed for the
request to fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.sizes.cuda import LARGE_SEGMENT, oversize_from
from memdiag.trace.table import Array
from memdiag.trace.topology import Topology


@dataclass(frozen=True)
class Fit:
    """The fit of one request at one moment.

    Attributes:
        request_bytes: The rounded request.
        free_bytes: Free bytes of its pool and stream.
        num_free: Number of free blocks.
        largest_free_bytes: The largest of them.
        between: Rows of Tensors: the live tensors (including those waiting for a stream) of the range, at least as long
            as the request, that has the fewest live bytes. Empty if the request fits, or if no segment is long enough.
        between_bytes: Bytes of their blocks.
        range_bytes: Length of that range, or 0 if no segment is long enough.
    """

    request_bytes: int
    free_bytes: int
    num_free: int
    largest_free_bytes: int
    between: Array
    between_bytes: int
    range_bytes: int

    @property
    def fits(self) -> bool:
        """Returns True if one free range is large enough."""
        return self.largest_free_bytes >= self.request_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes by which the largest free range is too small; 0 if it fits."""
        return max(self.request_bytes - self.largest_free_bytes, 0)


def would_fit(topology: Topology, group: int, request_bytes: int, max_split: int | None = None) -> Fit:
    """Returns whether a rounded request fits in pool and stream ``group``, and the tensors that block it.

    With ``max_split`` (max_split_size in bytes), large blocks that may not be split for the request do not count as
    free for it (CUDACachingAllocator.cpp: get_free_block).
    """
    segment = topology.blocks["segment"]
    mine = np.flatnonzero(topology.segments["group"][segment] == group)
    size, tensor = topology.blocks["size"][mine], topology.blocks["tensor"][mine]
    free = size[tensor < 0]
    if max_split is not None:
        free = free[free < oversize_from(request_bytes, max_split, LARGE_SEGMENT)]
    largest = int(free.max(initial=0))
    between, between_bytes, range_bytes = np.empty(0, tensor.dtype), 0, 0
    if largest < request_bytes:
        first, last = _cheapest_range(topology.blocks["address"][mine], size, segment[mine], tensor >= 0, request_bytes)
        if first >= 0:
            rows = tensor[first : last + 1]
            between = rows[rows >= 0]
            range_bytes = int(size[first : last + 1].sum())
            between_bytes = range_bytes - int(size[first : last + 1][rows < 0].sum())
    return Fit(request_bytes, int(free.sum()), len(free), largest, between, between_bytes, range_bytes)


def _cheapest_range(start: Array, size: Array, segment: Array, live: Array, request_bytes: int) -> tuple[int, int]:
    """Returns the first and last block of the cheapest run.

    A run is at least ``request_bytes`` long and within one segment; the cheapest has the fewest live bytes.

    For each first block, the shortest such run is enough: a longer one has no fewer live bytes. (-1, -1) if there is
    none.
    """
    last = np.searchsorted(start + size, start + request_bytes)
    inside = np.flatnonzero(last < len(start))
    inside = inside[segment[last[inside]] == segment[inside]]
    if not len(inside):
        return -1, -1
    live_before = np.concatenate(([0], np.cumsum(np.where(live, size, 0))))
    cost = live_before[last[inside] + 1] - live_before[inside]
    best = int(inside[np.argmin(cost)])
    return best, int(last[best])
