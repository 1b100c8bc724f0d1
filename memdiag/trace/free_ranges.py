"""Free ranges of the heap, compiled: the free range around a block, and sums over all free ranges.

Free blocks are never stored: the allocator merges neighbours, so the free ranges are exactly the gaps between blocks
and the bounds of their segment. Each range has two parts. A retry would release its *whole* bytes to the driver: the
entire range if it is a whole segment, or the whole pages in it if the segment is expandable. Only a request that fits
can use the rest.
"""

from __future__ import annotations

import numpy as np

from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace.bits import predecessor, remove, successor
from memdiag.trace.cells import cell_at, extent_of, lower_bound
from memdiag.trace.compiled import lean_part
from memdiag.trace.heap_state import FREE, WHOLE, Cells, Extent, PlacedBlocks, SplitRules, Totals


@lean_part
def gap_around(place: int, segment: Extent, blocks: PlacedBlocks) -> tuple[int, int, int]:
    """Returns the free range around a place in a segment, as if the place had no block.

    The first value is the place of the block below, or -1.
    """
    before = predecessor(blocks.live, blocks.live_starts, place - 1)
    after = successor(blocks.live, blocks.live_starts, place + 1)
    lo = segment.first if before < 0 else max(segment.first, blocks.address[before] + blocks.size[before])
    return before, lo, segment.end if after < 0 else min(segment.end, blocks.address[after])


@lean_part
def leaf_after(place: int, segment: Extent, blocks: PlacedBlocks) -> int:
    """Returns the leaf, in a tree of maxima, of the free range above a block in a segment.

    If the block is in another segment, or there is no block (-1), it is the range at the start of the segment.
    """
    if place >= 0 and blocks.address[place] >= segment.first:
        return place
    return len(blocks.address) + segment.first_cell


@lean_part
def count_range(
    lo: int, hi: int, leaf: int, sign: int, segment: Extent, cells: Cells, rules: SplitRules, totals: Totals
) -> None:
    """Adds (sign 1) or subtracts (-1) the free range [lo, hi) of a segment."""
    if lo >= hi:
        return
    size = hi - lo
    group = cells.group[segment.cell]
    whole = 0
    if lo == segment.first and hi == segment.end:
        whole = size
    elif cells.expandable[segment.cell]:
        page = SMALL_SEGMENT if rules.small[group] else rules.large_page
        whole = max((hi - segment.first) // page * page + (segment.first - lo) // page * page, 0)
    rest = size - whole
    totals.sums[FREE] += sign * size
    totals.sums[WHOLE] += sign * whole
    tree = totals.tree_of[group]
    if tree >= 0:
        _set_size(totals, tree, leaf, size if sign > 0 else 0)
    if rest == 0:
        return
    totals.rest[group] += sign * rest
    # Add the rest at the first reference size of this group that is larger than the range, in the Fenwick tree.
    base, count = totals.size_start[group], totals.size_start[group + 1] - totals.size_start[group]
    a, b = 0, count
    while a < b:
        middle = (a + b) >> 1
        if totals.sizes[base + middle] <= size:
            a = middle + 1
        else:
            b = middle
    at = a + 1
    while at <= count + 1:
        totals.rest_below[base + group + at - 1] += sign * rest
        at += at & -at


@lean_part
def _set_size(totals: Totals, tree: int, leaf: int, size: int) -> None:
    """Writes the size of a free range into a tree of maxima."""
    trees = totals.trees
    node = (trees.shape[1] >> 1) + leaf
    trees[tree, node] = size
    while node > 1:
        node >>= 1
        higher = max(trees[tree, 2 * node], trees[tree, 2 * node + 1])
        if trees[tree, node] == higher:
            break
        trees[tree, node] = higher


@lean_part
def rest_below(totals: Totals, group: int, position: int) -> int:
    """Returns the rest of free ranges of a group that are smaller than the reference size at ``position``."""
    below = np.int64(0)
    at = position + 1
    while at > 0:
        below += totals.rest_below[totals.size_start[group] + group + at - 1]
        at -= at & -at
    return below


@lean_part
def count_ranges(
    lo: int, hi: int, sign: int, cells: Cells, blocks: PlacedBlocks, rules: SplitRules, totals: Totals
) -> None:
    """Adds or subtracts every free range within [lo, hi)."""
    at = lo
    block = lower_bound(blocks.address, at)
    before = predecessor(blocks.live, blocks.live_starts, block - 1)
    if before >= 0:
        at = max(at, blocks.address[before] + blocks.size[before])
    block = successor(blocks.live, blocks.live_starts, block)
    while at < hi:
        cell = cell_at(cells.bounds, at)
        if cell < 0:
            break
        if cells.group[cell] < 0:
            at = cells.bounds[cell + 1]
            continue
        while block >= 0 and blocks.address[block] < at:
            block = successor(blocks.live, blocks.live_starts, block + 1)
        segment = extent_of(cell, cells)
        stop = segment.end if block < 0 else min(segment.end, blocks.address[block])
        count_range(at, stop, leaf_after(before, segment, blocks), sign, segment, cells, rules, totals)
        at = stop
        if block >= 0 and blocks.address[block] == stop:
            at += blocks.size[block]
            before = block


@lean_part
def release(place: int, cell: int, cells: Cells, blocks: PlacedBlocks, rules: SplitRules, totals: Totals) -> None:
    """Frees the block at a place: it merges with the free ranges next to it."""
    segment = extent_of(cell, cells)
    before, lo, hi = gap_around(place, segment, blocks)
    start, below = blocks.address[place], leaf_after(before, segment, blocks)
    end, above = start + blocks.size[place], leaf_after(place, segment, blocks)
    count_range(lo, start, below, -1, segment, cells, rules, totals)
    count_range(end, hi, above, -1, segment, cells, rules, totals)
    remove(blocks.live, blocks.live_starts, place)
    count_range(lo, hi, below, 1, segment, cells, rules, totals)
