"""The free ranges of a device at one moment, each with the cause for which it is free (docs/fragmentation.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.moments import reference_at
from memdiag.sizes.cuda import LARGE_SEGMENT, SMALL_SEGMENT
from memdiag.trace.free_split import whole_bytes
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.trace.topology import Topology

CAUSES: tuple[str, ...] = ("cache", "stranded", "foreign")
CACHE, STRANDED, FOREIGN = range(3)


@dataclass(frozen=True)
class FreeRanges:
    """Free ranges of a topology.

    Attributes:
        block: Row of the topology's blocks.
        whole_bytes: Bytes that a retry would release to the driver (cache): whole segments, and whole pages of
            expandable ones.
        cause: Index into CAUSES, for the remaining bytes.
    """

    block: Array
    whole_bytes: Array
    cause: Array

    def totals(self, topology: Topology) -> dict[str, int]:
        """Returns the bytes of each cause."""
        rest = topology.blocks["size"][self.block] - self.whole_bytes
        sums = {name: int(rest[self.cause == code].sum()) for code, name in enumerate(CAUSES)}
        sums["cache"] += int(self.whole_bytes.sum())
        return sums


def free_ranges(device: DeviceTrace, topology: Topology, large_page: int = LARGE_SEGMENT) -> FreeRanges:
    """Returns the free ranges at the moment of ``topology``, relative to the reference request of that moment.

    ``large_page`` is the unit of large expandable segments, in bytes (``trace.layout.large_segment``).
    """
    _, request, group = reference_at(device, topology.at)
    blocks, segments = topology.blocks, topology.segments
    block = np.flatnonzero(blocks["tensor"] < 0)
    home, start, size = blocks["segment"][block], blocks["address"][block], blocks["size"][block]
    small = (
        np.asarray(device.groups.small, bool)[segments["group"][home]]
        if len(device.groups)
        else np.zeros(len(block), bool)
    )
    page = np.where(small, SMALL_SEGMENT, large_page)
    whole = whole_bytes(
        segments["start"][home], segments["size"][home], start, size, segments["expandable"][home], page
    )
    mine = segments["group"][home] == group
    cause = np.where(mine, np.where(size >= (request or 0), CACHE, STRANDED), FOREIGN)
    return FreeRanges(block, whole, cause)
