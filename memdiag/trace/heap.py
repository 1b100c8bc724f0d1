"""Walks the heap through a trace, compiled: address and size of every block, and the split of free memory per event."""

from __future__ import annotations

import numpy as np

from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.trace.bits import insert, predecessor, remove, successor
from memdiag.trace.cells import extent_of, lower_bound, set_break
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.compiled_sizes import should_split
from memdiag.trace.free_ranges import count_range, count_ranges, gap_around, leaf_after, release, rest_below
from memdiag.trace.heap_state import (
    ACTIVE,
    ALLOCATED,
    CELL,
    CLOSED_AT,
    EXPANDABLE,
    FREE,
    GAP,
    GONE,
    GROUP,
    LIVE,
    OPENED_AT,
    OUTSIDE,
    OVERLAP,
    PENDING,
    REOPENED,
    REQUESTED,
    RESERVED,
    RESIZED,
    SEGMENT,
    SEGMENT_GONE_UNDER_BLOCK,
    TOO_LARGE,
    WHOLE,
    Heap,
    Record,
    ReferenceRows,
    SplitRules,
    WalkedEvents,
)
from memdiag.trace.schema import ALLOC, FREE_COMPLETED, FREE_REQUESTED

_MOST_ALIGNMENT = 16 * 1024  # upper bound of the bytes that torch_npu skips to align a block of an expandable segment


@lean_part
def _forget(tensor: int, heap: Heap) -> None:
    """Subtracts a block from the sums."""
    size, sums = heap.blocks.size[heap.tensors.place[tensor]], heap.totals.sums
    sums[ACTIVE] -= size
    if heap.tensors.state[tensor] == LIVE:
        sums[ALLOCATED] -= size
        sums[REQUESTED] -= heap.tensors.requested[tensor]
    heap.tensors.state[tensor] = GONE


@lean_part
def _end_early(place: int, event: int, cell: int, heap: Heap) -> None:
    """Ends the tensor at a place: it cannot be live at this event, although the file does not record its free."""
    tensor = heap.blocks.owner[place]
    _forget(tensor, heap)
    release(place, cell, heap.cells, heap.blocks, heap.rules, heap.totals)
    heap.tensors.requested_at[tensor] = min(heap.tensors.requested_at[tensor], event)
    heap.tensors.completed_at[tensor] = event


@lean_part
def _resize(place: int, change: int, heap: Heap) -> None:
    """Changes the size of a block from before the trace (its free neighbour is not counted here)."""
    tensor, sums = heap.blocks.owner[place], heap.totals.sums
    heap.totals.anomalies[RESIZED] += 1
    heap.blocks.size[place] += change
    heap.tensors.block[tensor] += change
    sums[ACTIVE] += change
    if heap.tensors.state[tensor] == LIVE:
        sums[ALLOCATED] += change


@lean_part
def _block_bytes(rounded: int, room: int, group: int, known: int, rules: SplitRules) -> int:
    """Returns the size of the block that a request of ``rounded`` bytes gets from ``room`` free bytes."""
    taken = rounded
    if rules.uncut[group]:
        known = room
    if known > 0:
        taken = known
    elif not should_split(room - rounded, rounded, rules.small[group], rules.fine, rules.max_split):
        taken = room
    return min(taken, room)


@lean_part
def _note_piece(row: int, cell: int, opened_at: int, heap: Heap, record: Record) -> None:
    """Writes a row of pieces for a reserved cell; until it is released, the row lasts to the end of the trace."""
    pieces = record.pieces
    pieces[CELL, row], pieces[OPENED_AT, row], pieces[CLOSED_AT, row] = cell, opened_at, record.curves.shape[1]
    pieces[GROUP, row] = heap.cells.group[cell]
    pieces[EXPANDABLE, row] = 1 if heap.cells.expandable[cell] else 0
    pieces[SEGMENT, row] = heap.cells.segment[cell]
    record.open_piece[cell] = row


@lean_part
def _reserve_start(heap: Heap, record: Record) -> int:
    """Adds the cells that were reserved before the trace to the sums; returns their number."""
    cells, num_pieces = heap.cells, 0
    for boundary in range(len(cells.bounds)):
        set_break(boundary, cells)
    for cell in range(len(cells.bounds) - 1):
        if cells.group[cell] >= 0:
            heap.totals.sums[RESERVED] += cells.bounds[cell + 1] - cells.bounds[cell]
            _note_piece(num_pieces, cell, -1, heap, record)
            num_pieces += 1
    return num_pieces


@lean_part
def _place_start(heap: Heap) -> None:
    """Places the blocks from before the trace, in order of address."""
    cells, blocks, tensors, totals = heap.cells, heap.blocks, heap.tensors, heap.totals
    # All blocks are inserted before any gap between them is measured.
    num_before = 0
    while num_before < len(tensors.place) and tensors.alloc_at[num_before] < 0:
        insert(blocks.live, blocks.live_starts, tensors.place[num_before])
        num_before += 1
    end_before = np.int64(-1)
    for tensor in range(num_before):
        place = tensors.place[tensor]
        address, cell = blocks.address[place], np.int64(blocks.cell[place])
        if cell < 0 or cells.group[cell] < 0 or address < end_before:
            totals.anomalies[OVERLAP if address < end_before else OUTSIDE] += 1
            remove(blocks.live, blocks.live_starts, place)
            continue
        group = cells.group[cell]
        end = extent_of(cell, cells).end
        following = successor(blocks.live, blocks.live_starts, place + 1)
        room = end - address if following < 0 else min(end, blocks.address[following]) - address
        size = _block_bytes(tensors.rounded[tensor], room, group, tensors.known[tensor], heap.rules)
        tensors.block[tensor], tensors.group[tensor] = size, group
        blocks.size[place], blocks.owner[place] = size, tensor
        end_before = address + size
        totals.sums[ACTIVE] += size
        tensors.state[tensor] = PENDING
        if tensors.requested_at[tensor] >= 0:
            tensors.state[tensor] = LIVE
            totals.sums[ALLOCATED] += size
            totals.sums[REQUESTED] += tensors.requested[tensor]
    if len(cells.bounds) > 1:
        count_ranges(cells.bounds[0], cells.bounds[-1], 1, cells, blocks, heap.rules, totals)


@lean_part
def _allocate(tensor: int, event: int, heap: Heap) -> None:
    """Places a block at its recorded address and computes its size."""
    cells, blocks, tensors, rules, totals = heap
    place = tensors.place[tensor]
    address, cell = blocks.address[place], np.int64(blocks.cell[place])
    if cell < 0 or cells.group[cell] < 0:
        totals.anomalies[OUTSIDE] += 1
        return
    group = cells.group[cell]
    over = predecessor(blocks.live, blocks.live_starts, place)
    if over >= 0 and blocks.address[over] + blocks.size[over] > address:
        older = blocks.owner[over]
        # Two blocks cannot overlap: the older one must have been freed, unless its size is only a guess.
        if over == place or tensors.known[older] > 0 or tensors.alloc_at[older] >= 0:
            totals.anomalies[OVERLAP] += 1
            _end_early(over, event, cell, heap)
    segment = extent_of(cell, cells)
    before, lo, hi = gap_around(place, segment, blocks)
    below = leaf_after(before, segment, blocks)
    count_range(lo, hi, below, -1, segment, cells, rules, totals)
    is_guess_before = False
    if before >= 0 and blocks.address[before] + blocks.size[before] == lo:
        is_guess_before = tensors.known[blocks.owner[before]] <= 0 and tensors.alloc_at[blocks.owner[before]] < 0
    if lo > address:  # the previous block extends over this address, so the guess of its size was too large
        _resize(before, address - lo, heap)
    elif lo < address:
        if is_guess_before and not rules.small[group] and not rules.fine and address - lo <= SMALL_LIMIT:
            # An allocation uses the low end of a free range, so this gap belongs to the previous block.
            _resize(before, address - lo, heap)
        else:
            if address - lo >= _MOST_ALIGNMENT:
                totals.anomalies[GAP] += 1
            count_range(lo, address, below, 1, segment, cells, rules, totals)
    size = _block_bytes(tensors.rounded[tensor], hi - address, group, tensors.known[tensor], rules)
    if size < tensors.rounded[tensor]:
        totals.anomalies[TOO_LARGE] += 1
    count_range(address + size, hi, place, 1, segment, cells, rules, totals)
    tensors.block[tensor], tensors.group[tensor], tensors.state[tensor] = size, group, LIVE
    blocks.size[place], blocks.owner[place] = size, tensor
    insert(blocks.live, blocks.live_starts, place)
    totals.sums[ALLOCATED] += size
    totals.sums[ACTIVE] += size
    totals.sums[REQUESTED] += tensors.requested[tensor]


@lean_part
def _end_blocks_within(start: int, end: int, event: int, heap: Heap) -> None:
    """Ends the blocks in released memory: they must have been freed although no event records it."""
    blocks = heap.blocks
    first = lower_bound(blocks.address, start)
    place = predecessor(blocks.live, blocks.live_starts, first - 1)
    if place < 0 or blocks.address[place] + blocks.size[place] <= start:
        place = successor(blocks.live, blocks.live_starts, first)
    while place >= 0 and blocks.address[place] < end:
        heap.totals.anomalies[SEGMENT_GONE_UNDER_BLOCK] += 1
        _end_early(place, event, np.int64(blocks.cell[place]), heap)
        place = successor(blocks.live, blocks.live_starts, place + 1)


@lean_part
def _change_segment(event: int, num_pieces: int, events: WalkedEvents, heap: Heap, record: Record) -> int:
    """Applies a segment event; returns the number of rows of pieces.

    It subtracts the free ranges that touch the memory of the event, updates the cells, and adds the new free ranges.
    """
    cells, blocks, rules, totals = heap.cells, heap.blocks, heap.rules, heap.totals
    row = events.row[event]
    cell_lo, cell_hi = events.lo[row], events.hi[row]
    start, end = cells.bounds[cell_lo], cells.bounds[cell_hi]
    if not events.opens[row]:
        _end_blocks_within(start, end, event, heap)
    lo, hi = start, end
    if cell_lo > 0 and cells.group[cell_lo - 1] >= 0:
        first = extent_of(cell_lo - 1, cells).first
        before = predecessor(blocks.live, blocks.live_starts, lower_bound(blocks.address, start) - 1)
        lo = min(start, first if before < 0 else max(first, blocks.address[before] + blocks.size[before]))
    if cell_hi < len(cells.bounds) - 1 and cells.group[cell_hi] >= 0:
        last = extent_of(cell_hi, cells).end
        after = successor(blocks.live, blocks.live_starts, lower_bound(blocks.address, end))
        hi = max(end, last if after < 0 else min(last, blocks.address[after]))
    count_ranges(lo, hi, -1, cells, blocks, rules, totals)
    for cell in range(cell_lo, cell_hi):
        size = cells.bounds[cell + 1] - cells.bounds[cell]
        is_reserved = cells.group[cell] >= 0
        if is_reserved == events.opens[row]:
            totals.anomalies[REOPENED] += 1
        elif is_reserved:
            totals.sums[RESERVED] -= size
            record.pieces[CLOSED_AT, record.open_piece[cell]] = event
            cells.group[cell] = -1
        else:
            cells.group[cell], cells.expandable[cell] = events.group[row], events.expandable[row]
            cells.segment[cell] = events.segment[row]
            totals.sums[RESERVED] += size
            _note_piece(num_pieces, cell, event, heap, record)
            num_pieces += 1
    for boundary in range(cell_lo, cell_hi + 1):
        set_break(boundary, cells)
    count_ranges(lo, hi, 1, cells, blocks, rules, totals)
    return num_pieces


@lean(plain_seconds=3e-5)
def walk(events: WalkedEvents, references: ReferenceRows, heap: Heap, record: Record) -> int:
    """Walks all events; returns the number of rows of pieces.

    Args:
        events: The events and the segment plan.
        references: The reference requests; the walk writes the largest free range before each.
        heap: The heap before the first event; the walk changes it.
        record: The results, which the walk writes.
    """
    cells, blocks, tensors, rules, totals = heap
    sums, curves = totals.sums, record.curves
    num_pieces = _reserve_start(heap, record)
    _place_start(heap)
    for position in range(len(sums)):
        record.start[position] = sums[position]

    for event in range(len(events.action)):
        reference = references.of[event]
        if reference >= 0 and references.opened_at[reference] == event:
            tree = totals.tree_of[references.group[reference]]
            if tree >= 0:
                references.largest[reference] = totals.trees[tree, 1]
        code, tensor = events.action[event], events.tensor[event]
        if code == ALLOC and tensor >= 0:
            _allocate(tensor, event, heap)
        elif (code == FREE_REQUESTED or code == FREE_COMPLETED) and tensor >= 0 and tensors.state[tensor] != GONE:
            place = tensors.place[tensor]
            if code == FREE_COMPLETED:
                _forget(tensor, heap)
                release(place, np.int64(blocks.cell[place]), cells, blocks, rules, totals)
            elif tensors.state[tensor] == LIVE:
                sums[ALLOCATED] -= blocks.size[place]
                sums[REQUESTED] -= tensors.requested[tensor]
                tensors.state[tensor] = PENDING
        elif events.row[event] >= 0:
            num_pieces = _change_segment(event, num_pieces, events, heap, record)
        curves[0, event], curves[1, event] = sums[RESERVED], sums[ALLOCATED]
        curves[2, event], curves[3, event] = sums[ACTIVE], sums[REQUESTED]
        if reference >= 0:
            group = references.group[reference]
            below = rest_below(totals, group, references.position[reference])
            curves[4, event] = sums[WHOLE] + totals.rest[group] - below
            curves[5, event] = below
            curves[6, event] = sums[FREE] - curves[4, event] - below
        else:
            curves[4, event] = curves[5, event] = curves[6, event] = -1
    return num_pieces
