"""Walks the heap through a trace, compiled: where every block lies, how large it is, and what is free for whom after each event.

Free blocks are never stored: the allocator merges neighbours, so the free ranges are exactly the gaps between blocks
and the bounds of their segment. Per range two numbers count: its *whole* bytes, which a retry would give back to the
driver (all of it if it is a whole segment; the whole pages in it if the segment is expandable), and the rest, which
only a request that fits can use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.sizes.cuda import SMALL_LIMIT, SMALL_SEGMENT
from memdiag.trace.bits import insert, predecessor, remove, successor
from memdiag.trace.cells import bounds_of, cell_at, set_break
from memdiag.trace.compiled import njit
from memdiag.trace.compiled_sizes import should_split
from memdiag.trace.schema import ALLOC, FREE_COMPLETED, FREE_REQUESTED
from memdiag.trace.table import Array

_MOST_ALIGNMENT = 16 * 1024  # torch_npu skips less than this to align a block of an expandable segment
# Positions in the vector of anomalies.
OVERLAP, OUTSIDE, SEGMENT_GONE_UNDER_BLOCK, TOO_LARGE, GAP, REOPENED, NUM_HEAP = range(7)
# Positions in the vector of sums.
RESERVED, ALLOCATED, ACTIVE, REQUESTED, FREE, WHOLE, NUM_SUMS = range(7)


@njit
def _gap(
    p: int, first: int, end: int, place: Array, size_at: Array, live: Array, live_starts: Array
) -> tuple[int, int]:
    """What lies free around the place ``p`` in the segment [first, end), the block at ``p`` itself left aside."""
    before = predecessor(live, live_starts, p - 1)
    after = successor(live, live_starts, p + 1)
    lo = first if before < 0 else max(first, place[before] + size_at[before])
    return lo, end if after < 0 else min(end, place[after])


@njit
def _count(lo: int, hi: int, cell: int, sign: int, heap: Any, sums: Array) -> None:
    """Adds (sign 1) or takes away (-1) the free range [lo, hi) that lies in ``cell``'s segment."""
    if lo >= hi:
        return
    (
        bounds,
        cell_group,
        cell_expandable,
        breaks,
        break_starts,
        group_small,
        large_page,
        xs,
        x_start,
        fenwick,
        rest_of,
        edges,
        tree_of,
        trees,
    ) = heap
    size = hi - lo
    first, last = bounds_of(cell, bounds, breaks, break_starts)
    group = cell_group[cell]
    whole = 0
    if lo == first and hi == last:
        whole = size
    elif cell_expandable[cell]:
        page = SMALL_SEGMENT if group_small[group] else large_page
        whole = max((hi - first) // page * page + (first - lo) // page * page, 0)
    rest = size - whole
    sums[FREE] += sign * size
    sums[WHOLE] += sign * whole
    rest_of[group] += sign * rest
    if tree_of[group] >= 0:
        # A range is known by the last edge (beginning of a block or cell) at or before it: no other free range has the
        # same one.
        tree = trees[tree_of[group]]
        node = (len(tree) >> 1) + np.searchsorted(edges, lo, side="right") - 1
        tree[node] = size if sign > 0 else 0
        while node > 1:
            node >>= 1
            higher = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == higher:
                break
            tree[node] = higher
    # Which of the reference sizes of this group does the range serve? A Fenwick tree over them sums the rest.
    base, count = x_start[group], x_start[group + 1] - x_start[group]
    a, b = 0, count
    while a < b:
        middle = (a + b) >> 1
        if xs[base + middle] <= size:
            a = middle + 1
        else:
            b = middle
    at = a + 1
    while at <= count + 1:
        fenwick[base + group + at - 1] += sign * rest
        at += at & -at


@njit
def _sweep(
    lo: int, hi: int, sign: int, heap: Any, sums: Array, place: Array, size_at: Array, live: Array, live_starts: Array
) -> None:
    """Counts every free range within [lo, hi)."""
    bounds, cell_group, breaks, break_starts = heap[0], heap[1], heap[3], heap[4]
    pos = lo
    block = np.searchsorted(place, pos)
    before = predecessor(live, live_starts, block - 1)
    if before >= 0:
        pos = max(pos, place[before] + size_at[before])
    block = successor(live, live_starts, block)
    while pos < hi:
        cell = cell_at(bounds, pos)
        if cell < 0:
            break
        if cell_group[cell] < 0:
            pos = bounds[cell + 1]
            continue
        while block >= 0 and place[block] < pos:
            block = successor(live, live_starts, block + 1)
        end = bounds[successor(breaks, break_starts, cell + 1)]
        stop = end if block < 0 else min(end, place[block])
        _count(pos, stop, cell, sign, heap, sums)
        pos = stop
        if block >= 0 and place[block] == stop:
            pos += size_at[block]


@njit
def _release(
    p: int, cell: int, heap: Any, sums: Array, place: Array, size_at: Array, live: Array, live_starts: Array
) -> None:
    """Makes the block at ``p`` free: it becomes one range with its free neighbours."""
    first, end = bounds_of(cell, heap[0], heap[3], heap[4])
    lo, hi = _gap(p, first, end, place, size_at, live, live_starts)
    _count(lo, place[p], cell, -1, heap, sums)
    _count(place[p] + size_at[p], hi, cell, -1, heap, sums)
    remove(live, live_starts, p)
    _count(lo, hi, cell, 1, heap, sums)


@njit
def _forget(t: int, size: int, requested: Array, state: Array, sums: Array) -> None:
    """Takes a block out of the sums."""
    sums[ACTIVE] -= size
    if state[t] == 1:
        sums[ALLOCATED] -= size
        sums[REQUESTED] -= requested[t]
    state[t] = 0


@njit
def _vanish(
    t: int,
    p: int,
    i: int,
    cell: int,
    heap: Any,
    sums: Array,
    place: Array,
    size_at: Array,
    live: Array,
    live_starts: Array,
    requested: Array,
    state: Array,
    requested_at: Array,
    completed_at: Array,
) -> None:
    """Ends a tensor that cannot be there any more at event ``i``, though the file has no free of it."""
    _forget(t, size_at[p], requested, state, sums)
    _release(p, cell, heap, sums, place, size_at, live, live_starts)
    requested_at[t], completed_at[t] = min(requested_at[t], i), i


@njit
def _resize(p: int, t: int, change: int, block: Array, size_at: Array, state: Array, sums: Array) -> None:
    """Changes the size of a block in place (its free neighbour is not counted here)."""
    size_at[p] += change
    block[t] += change
    sums[ACTIVE] += change
    if state[t] == 1:
        sums[ALLOCATED] += change


@njit
def _block_bytes(rounded: int, room: int, small: bool, fine: bool, max_split: int, known: int) -> int:
    """Size of the block that a request of ``rounded`` bytes gets out of ``room`` free bytes (at most ``room``)."""
    taken = rounded
    if known > 0:
        taken = known
    elif not should_split(room - rounded, rounded, small, fine, max_split):
        taken = room
    return min(taken, room)


@njit
def _note_piece(
    pieces: Array, row: int, cell: int, opened: int, closed: int, group: int, expandable: bool, segment: int
) -> None:
    """Writes a row of pieces."""
    pieces[0, row], pieces[1, row], pieces[2, row] = cell, opened, closed
    pieces[3, row], pieces[4, row], pieces[5, row] = group, 1 if expandable else 0, segment


@njit
def walk(
    action: Array,
    tensor_of: Array,
    segment_row: Array,
    plan_opens: Array,
    plan_expandable: Array,
    plan_lo: Array,
    plan_hi: Array,
    plan_group: Array,
    plan_segment: Array,
    bounds: Array,
    cell_group: Array,
    cell_segment: Array,
    cell_expandable: Array,
    breaks: Array,
    break_starts: Array,
    group_small: Array,
    group_uncut: Array,
    large_page: int,
    fine_split: bool,
    max_split: int,
    place: Array,
    live: Array,
    live_starts: Array,
    tensor_place: Array,
    alloc_at: Array,
    requested_at: Array,
    completed_at: Array,
    requested: Array,
    rounded: Array,
    known: Array,
    reference_of: Array,
    reference_opened: Array,
    reference_group: Array,
    reference_x: Array,
    xs: Array,
    x_start: Array,
    edges: Array,
    tree_of: Array,
    trees: Array,
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array, bool]:
    """Walks all events.

    Args:
        segment_row: Row of the plan for each segment event; -1 for others.
        place: Sorted addresses at which blocks ever begin; ``tensor_place`` is the row in it of each tensor.
        group_uncut: Groups in which a block is all that was free around it.
        requested_at, completed_at: When each tensor is freed; written to where it must have been gone earlier.
        known: Bytes of each tensor's block where the file itself says so; -1 elsewhere.
        reference_of: Reference of each event; reference_opened, _group, _x: first event, group and position among
            ``xs`` of each.
        xs: Distinct reference sizes, sorted within each group, group g's at x_start[g]:x_start[g + 1].
        edges: Sorted distinct values of place and bounds. trees: for each group with references a tree of maxima over them, filled
            with zeros; tree_of: its row for each group, -1: none.

    Returns:
        Curves (7 x events: reserved, allocated, active, requested, cache, stranded, foreign), block bytes and group of each
        tensor, largest free range before each reference (-1: it has no tree), pieces (6 x rows: cell, opened_at, closed_at,
        group, expandable, segment), anomalies, sums before the first event, state of each tensor at the end (0 gone,
        1 allocated, 2 pending), and whether a guess at the size of a block from before the trace had to be mended.
    """
    n = len(action)
    num_groups = len(group_small)
    num_tensors = len(tensor_place)
    curves = np.full((7, n), -1, np.int64)
    block = rounded.copy()
    for tensor in range(len(known)):  # np.where takes numba two seconds longer to compile
        if known[tensor] > 0:
            block[tensor] = known[tensor]
    group_of = np.full(num_tensors, -1, np.int32)
    state = np.zeros(num_tensors, np.int8)
    best = np.full(len(reference_opened), -1, np.int64)
    anomalies = np.zeros(NUM_HEAP, np.int64)
    sums = np.zeros(NUM_SUMS, np.int64)
    size_at = np.zeros(len(place), np.int64)
    owner = np.full(len(place), -1, np.int32)
    mended = False
    fenwick = np.zeros(len(xs) + num_groups + 1, np.int64)
    rest_of = np.zeros(num_groups, np.int64)
    heap = (
        bounds,
        cell_group,
        cell_expandable,
        breaks,
        break_starts,
        group_small,
        large_page,
        xs,
        x_start,
        fenwick,
        rest_of,
        edges,
        tree_of,
        trees,
    )

    pieces = np.empty((6, max(2 * len(plan_lo) + len(bounds), 16)), np.int64)
    num_pieces = 0
    open_piece = np.full(len(bounds), -1, np.int64)
    for cell in range(len(bounds) - 1):
        if cell_group[cell] >= 0:
            sums[RESERVED] += bounds[cell + 1] - bounds[cell]
            _note_piece(pieces, num_pieces, cell, -1, n, cell_group[cell], cell_expandable[cell], cell_segment[cell])
            open_piece[cell] = num_pieces
            num_pieces += 1

    # Blocks from before the trace, in order of address: all of them stand before any gap between them is measured.
    num_before = 0
    while num_before < num_tensors and alloc_at[num_before] < 0:
        insert(live, live_starts, tensor_place[num_before])
        num_before += 1
    end_before = np.int64(-1)
    for t in range(num_before):
        p = tensor_place[t]
        cell = cell_at(bounds, place[p])
        if cell < 0 or cell_group[cell] < 0 or place[p] < end_before:
            anomalies[OVERLAP if place[p] < end_before else OUTSIDE] += 1
            remove(live, live_starts, p)
            continue
        group = cell_group[cell]
        first, end = bounds_of(cell, bounds, breaks, break_starts)
        following = successor(live, live_starts, p + 1)
        room = end - place[p] if following < 0 else min(end, place[following]) - place[p]
        block[t] = _block_bytes(
            rounded[t], room, group_small[group], fine_split, max_split, room if group_uncut[group] else known[t]
        )
        group_of[t], size_at[p], owner[p] = group, block[t], t
        end_before = place[p] + block[t]
        sums[ACTIVE] += block[t]
        state[t] = 2
        if requested_at[t] >= 0:
            state[t] = 1
            sums[ALLOCATED] += block[t]
            sums[REQUESTED] += requested[t]
    if len(bounds) > 1:
        _sweep(bounds[0], bounds[-1], 1, heap, sums, place, size_at, live, live_starts)
    start = sums.copy()

    for i in range(n):
        reference = reference_of[i]
        if reference >= 0 and reference_opened[reference] == i and tree_of[reference_group[reference]] >= 0:
            best[reference] = trees[tree_of[reference_group[reference]], 1]
        code = action[i]
        t = tensor_of[i]
        if code == ALLOC and t >= 0:
            p = tensor_place[t]
            address = place[p]
            cell = cell_at(bounds, address)
            if cell < 0 or cell_group[cell] < 0:
                anomalies[OUTSIDE] += 1
            else:
                group = cell_group[cell]
                over = predecessor(live, live_starts, p)
                if over >= 0 and place[over] + size_at[over] > address:
                    old = owner[over]
                    if (
                        over == p or known[old] > 0 or alloc_at[old] >= 0
                    ):  # two blocks cannot overlap: the older one must be gone
                        anomalies[OVERLAP] += 1
                        _vanish(
                            old,
                            over,
                            i,
                            cell,
                            heap,
                            sums,
                            place,
                            size_at,
                            live,
                            live_starts,
                            requested,
                            state,
                            requested_at,
                            completed_at,
                        )
                first, end = bounds_of(cell, bounds, breaks, break_starts)
                lo, hi = _gap(p, first, end, place, size_at, live, live_starts)
                _count(lo, hi, cell, -1, heap, sums)
                before = predecessor(live, live_starts, p - 1)
                touches = before >= 0 and place[before] + size_at[before] == lo
                old = owner[before] if touches else -1
                guessed = old >= 0 and known[old] <= 0 and alloc_at[old] < 0
                if lo > address:  # the block before reaches over this address: its slack was guessed too large
                    mended = True
                    _resize(before, old, address - lo, block, size_at, state, sums)
                elif lo < address:
                    if guessed and not group_small[group] and not fine_split and address - lo <= SMALL_LIMIT:
                        # An allocation takes the low end of what is free: this gap belongs to the block before it.
                        mended = True
                        _resize(before, old, address - lo, block, size_at, state, sums)
                    else:
                        if address - lo >= _MOST_ALIGNMENT:
                            anomalies[GAP] += 1
                        _count(lo, address, cell, 1, heap, sums)
                room = hi - address
                taken = _block_bytes(
                    rounded[t],
                    room,
                    group_small[group],
                    fine_split,
                    max_split,
                    room if group_uncut[group] else known[t],
                )
                if taken < rounded[t]:
                    anomalies[TOO_LARGE] += 1
                _count(address + taken, hi, cell, 1, heap, sums)
                block[t], size_at[p], owner[p], group_of[t], state[t] = taken, taken, t, group, 1
                insert(live, live_starts, p)
                sums[ALLOCATED] += taken
                sums[ACTIVE] += taken
                sums[REQUESTED] += requested[t]
        elif (code == FREE_REQUESTED or code == FREE_COMPLETED) and t >= 0 and state[t] > 0:
            p = tensor_place[t]
            if code == FREE_COMPLETED:
                _forget(t, size_at[p], requested, state, sums)
                _release(p, cell_at(bounds, place[p]), heap, sums, place, size_at, live, live_starts)
            elif state[t] == 1:
                sums[ALLOCATED] -= size_at[p]
                sums[REQUESTED] -= requested[t]
                state[t] = 2
        elif segment_row[i] >= 0:
            r = segment_row[i]
            s, e = bounds[plan_lo[r]], bounds[plan_hi[r]]
            if not plan_opens[r]:
                # A block cannot stay in memory that goes away: it must have been freed without an entry.
                p = predecessor(live, live_starts, np.searchsorted(place, s) - 1)
                if p < 0 or place[p] + size_at[p] <= s:
                    p = successor(live, live_starts, np.searchsorted(place, s))
                while p >= 0 and place[p] < e:
                    anomalies[SEGMENT_GONE_UNDER_BLOCK] += 1
                    _vanish(
                        owner[p],
                        p,
                        i,
                        cell_at(bounds, place[p]),
                        heap,
                        sums,
                        place,
                        size_at,
                        live,
                        live_starts,
                        requested,
                        state,
                        requested_at,
                        completed_at,
                    )
                    p = successor(live, live_starts, p + 1)
            # Every free range that touches [s, e) is taken out, the cells change hands, and the ranges are counted
            # anew.
            lo, hi = s, e
            if plan_lo[r] > 0 and cell_group[plan_lo[r] - 1] >= 0:
                first, end = bounds_of(plan_lo[r] - 1, bounds, breaks, break_starts)
                before = predecessor(live, live_starts, np.searchsorted(place, s) - 1)
                lo = min(s, first if before < 0 else max(first, place[before] + size_at[before]))
            if plan_hi[r] < len(bounds) - 1 and cell_group[plan_hi[r]] >= 0:
                first, end = bounds_of(plan_hi[r], bounds, breaks, break_starts)
                after = successor(live, live_starts, np.searchsorted(place, e))
                hi = max(e, end if after < 0 else min(end, place[after]))
            _sweep(lo, hi, -1, heap, sums, place, size_at, live, live_starts)
            for cell in range(plan_lo[r], plan_hi[r]):
                width = bounds[cell + 1] - bounds[cell]
                held = cell_group[cell] >= 0
                if held == plan_opens[r]:
                    anomalies[REOPENED] += 1
                elif held:
                    sums[RESERVED] -= width
                    pieces[2, open_piece[cell]] = i
                    cell_group[cell] = -1
                else:
                    cell_group[cell], cell_expandable[cell] = plan_group[r], plan_expandable[r]
                    cell_segment[cell] = plan_segment[r]
                    sums[RESERVED] += width
                    if num_pieces == pieces.shape[1]:
                        wider = np.empty((6, 2 * num_pieces), np.int64)
                        for field in range(6):  # a slice takes numba two seconds longer to compile
                            for piece in range(num_pieces):
                                wider[field, piece] = pieces[field, piece]
                        pieces = wider
                    _note_piece(pieces, num_pieces, cell, i, n, plan_group[r], plan_expandable[r], plan_segment[r])
                    open_piece[cell] = num_pieces
                    num_pieces += 1
            for b in range(plan_lo[r], plan_hi[r] + 1):
                set_break(b, bounds, cell_group, cell_segment, cell_expandable, breaks, break_starts)
            _sweep(lo, hi, 1, heap, sums, place, size_at, live, live_starts)
        curves[0, i], curves[1, i], curves[2, i], curves[3, i] = (
            sums[RESERVED],
            sums[ALLOCATED],
            sums[ACTIVE],
            sums[REQUESTED],
        )
        if reference >= 0:
            g = reference_group[reference]
            # What lies in ranges smaller than x: a prefix of the Fenwick tree of that group.
            below = np.int64(0)
            at = reference_x[reference] + 1
            while at > 0:
                below += fenwick[x_start[g] + g + at - 1]
                at -= at & -at
            curves[4, i] = sums[WHOLE] + rest_of[g] - below
            curves[5, i] = below
            curves[6, i] = sums[FREE] - curves[4, i] - below
    return curves, block, group_of, best, pieces[:, :num_pieces].copy(), anomalies, start, state, mended
