"""The memory of a device at a moment as rows: segments with their usage, and their blocks and free ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memdiag.analyzers.support.moments import reference_at
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array
from memdiag.trace.topology import Topology
from memdiag.views.heap import CACHE, FreeRanges, free_ranges

ORDERS: tuple[str, ...] = ("address", "size", "free", "largest free range")
FREE, PENDING, USED = range(3)


@dataclass(frozen=True, slots=True)
class Segment:
    """A reserved range: address, size, pool (row of Groups), and free bytes."""

    number: int
    start: int
    size: int
    group: int
    expandable: bool
    free: int
    largest_free: int
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Range:
    """A block or a free range in a segment.

    Attributes:
        offset, size: Offset of the range in the segment, and its size, in bytes.
        tensor: Row of Tensors, or -1 if free.
        pending: Whether it is freed, but waiting for a stream.
        cause: Why it is free, an index into ``heap.CAUSES``, or -1 if it is not.
    """

    offset: int
    size: int
    tensor: int
    pending: bool
    cause: int


class SegmentRows:
    """The memory of a device after one event (-1: before the first)."""

    def __init__(self, trace: Trace, device: DeviceTrace, at: int) -> None:
        self._device = device
        self.topology: Topology = device.topology(at)
        self.free: FreeRanges = free_ranges(device, self.topology, trace.layout.large_segment)
        _, self.reference_bytes, self.reference_group = reference_at(device, at)

    def __len__(self) -> int:
        return len(self.topology.segments["start"])

    def in_order(self, order: str = "address") -> Array:
        """Returns the segments (their numbers) in one of ``ORDERS``."""
        if order == "address":
            return np.arange(len(self))
        key = {
            "size": self.topology.segments["size"],
            "free": self._free_bytes,
            "largest free range": self._largest_free,
        }[order]
        return np.argsort(-key, kind="stable")

    def segment(self, number: int) -> Segment:
        """Returns one segment."""
        columns = self.topology.segments
        first, last = self._bounds[number], self._bounds[number + 1]
        return Segment(
            number,
            int(columns["start"][number]),
            int(columns["size"][number]),
            int(columns["group"][number]),
            bool(columns["expandable"][number]),
            int(self._free_bytes[number]),
            int(self._largest_free[number]),
            int((self.topology.blocks["tensor"][first:last] >= 0).sum()),
        )

    def num_ranges(self, number: int) -> int:
        """Returns the number of blocks and free ranges of a segment."""
        return int(self._bounds[number + 1] - self._bounds[number])

    def range(self, number: int, place: int) -> Range:
        """Returns the block or free range at an index (from 0) in a segment."""
        blocks = self.topology.blocks
        row = int(self._bounds[number]) + place
        return Range(
            int(blocks["address"][row]) - int(self.topology.segments["start"][number]),
            int(blocks["size"][row]),
            int(blocks["tensor"][row]),
            bool(blocks["pending"][row]),
            int(self._cause[row]),
        )

    def bar(self, number: int, width: int) -> tuple[list[int], list[int]]:
        """Returns, for each of ``width`` cells of a segment, its state and the tensor with most of it (-1: none).

        A cell is USED or PENDING if at least half of it is. A cell that is not wholly used is FREE from a half on.
        """
        blocks = self.topology.blocks
        first, last = int(self._bounds[number]), int(self._bounds[number + 1])
        start = int(self.topology.segments["start"][number])
        size = max(int(self.topology.segments["size"][number]), 1)
        edges = start + np.arange(width + 1) * (size / width)
        taken = first + np.flatnonzero(blocks["tensor"][first:last] >= 0)
        begin, length = blocks["address"][taken].astype(np.float64), blocks["size"][taken]
        # Bytes used below each edge: whole blocks before it, and the part of the block that it cuts.
        before = np.concatenate(([0], np.cumsum(length)))
        place = np.searchsorted(begin, edges, side="right")
        cut = np.zeros(width + 1)
        some = place > 0
        if len(taken):
            inside = np.minimum(edges[some] - begin[place[some] - 1], length[place[some] - 1])
            cut[some] = inside - length[place[some] - 1]
        used = np.diff(before[place] + cut)
        middle = (edges[:-1] + edges[1:]) / 2
        owner = np.full(width, -1, np.int64)
        state = np.where(used * 2 * width >= size, USED, FREE)
        if len(taken):
            nearest = np.clip(np.searchsorted(begin, middle, side="right") - 1, 0, len(taken) - 1)
            there = (begin[nearest] <= middle) & (middle < begin[nearest] + length[nearest])
            owner = np.where(there, blocks["tensor"][taken[nearest]], -1)
            state = np.where((state == USED) & there & blocks["pending"][taken[nearest]], PENDING, state)
        return state.tolist(), owner.tolist()

    @cached_property
    def _bounds(self) -> Array:
        return np.searchsorted(self.topology.blocks["segment"], np.arange(len(self) + 1))

    @cached_property
    def _cause(self) -> Array:
        cause = np.full(len(self.topology.blocks["size"]), -1, np.int64)
        cause[self.free.block] = np.where(self.free.whole_bytes > 0, CACHE, self.free.cause)
        return cause

    @cached_property
    def _free_bytes(self) -> Array:
        return self._over_free(np.add.at)

    @cached_property
    def _largest_free(self) -> Array:
        return self._over_free(np.maximum.at)

    def _over_free(self, gather: Callable[[Array, Array, Array], None]) -> Array:
        result = np.zeros(len(self), np.int64)
        block = self.free.block
        gather(result, self.topology.blocks["segment"][block], self.topology.blocks["size"][block])
        return result
