"""Cells of the address space, and the boundaries that a free range cannot cross, compiled.

See ``regions`` for the definition of a cell. ``breaks`` is a set (``bits``) of boundaries.
"""

from __future__ import annotations

from memdiag.trace.bits import insert, predecessor, remove, successor
from memdiag.trace.compiled import njit
from memdiag.trace.table import Array


@njit
def cell_at(bounds: Array, address: int) -> int:
    """Returns the cell that contains an address, or -1 if none does."""
    lo, hi = 0, len(bounds) - 1
    if hi < 1 or address < bounds[0] or address >= bounds[hi]:
        return -1
    while hi - lo > 1:
        middle = (lo + hi) >> 1
        if bounds[middle] <= address:
            lo = middle
        else:
            hi = middle
    return lo


@njit
def bounds_of(cell: int, bounds: Array, breaks: Array, break_starts: Array) -> tuple[int, int]:
    """Returns the first address and the end of the segment that contains a cell."""
    return bounds[predecessor(breaks, break_starts, cell)], bounds[successor(breaks, break_starts, cell + 1)]


@njit
def set_break(
    b: int,
    bounds: Array,
    cell_group: Array,
    cell_segment: Array,
    cell_expandable: Array,
    breaks: Array,
    break_starts: Array,
) -> None:
    """Records whether a free range can cross the boundary ``b``."""
    joins = False
    if 0 < b < len(bounds) - 1 and cell_group[b - 1] >= 0 and cell_group[b - 1] == cell_group[b]:
        joins = (cell_expandable[b] and cell_expandable[b - 1]) or (
            cell_segment[b] >= 0 and cell_segment[b] == cell_segment[b - 1]
        )
    if joins:
        remove(breaks, break_starts, b)
    else:
        insert(breaks, break_starts, b)


@njit
def set_breaks(
    bounds: Array, cell_group: Array, cell_segment: Array, cell_expandable: Array, breaks: Array, break_starts: Array
) -> None:
    """Records this for every boundary."""
    for b in range(len(bounds)):
        set_break(b, bounds, cell_group, cell_segment, cell_expandable, breaks, break_starts)
