"""Cells of the address space, and the boundaries that a free range cannot cross, compiled.

See ``regions`` for the definition of a cell. ``breaks`` is a set (``bits``) of boundaries.
"""

from __future__ import annotations

from memdiag.trace.bits import insert, predecessor, remove, successor
from memdiag.trace.compiled import lean_part
from memdiag.trace.heap_state import Cells, Extent
from memdiag.trace.table import Array


@lean_part
def lower_bound(values: Array, value: int) -> int:
    """Returns the first index of a sorted column whose element is at least ``value``; its length if there is none."""
    lo, hi = 0, len(values)
    while lo < hi:
        middle = (lo + hi) >> 1
        if values[middle] < value:
            lo = middle + 1
        else:
            hi = middle
    return lo


@lean_part
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


@lean_part
def extent_of(cell: int, cells: Cells) -> Extent:
    """Returns the segment that contains a cell."""
    first_cell = predecessor(cells.breaks, cells.break_starts, cell)
    last = successor(cells.breaks, cells.break_starts, cell + 1)
    return Extent(cell, first_cell, cells.bounds[first_cell], cells.bounds[last])


@lean_part
def set_break(boundary: int, cells: Cells) -> None:
    """Records whether a free range can cross a boundary."""
    below, joins = boundary - 1, False
    if 0 < boundary < len(cells.bounds) - 1 and cells.group[below] >= 0 and cells.group[below] == cells.group[boundary]:
        joins = (cells.expandable[boundary] and cells.expandable[below]) or (
            cells.segment[boundary] >= 0 and cells.segment[boundary] == cells.segment[below]
        )
    if joins:
        remove(cells.breaks, cells.break_starts, boundary)
    else:
        insert(cells.breaks, cells.break_starts, boundary)
