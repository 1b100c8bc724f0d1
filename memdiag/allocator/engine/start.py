"""Loads the initial allocator state into the model: segments, blocks, and the free blocks between them.

A snapshot shows the mapped pieces of an expandable segment, but not the range of addresses that was reserved for it.
The model uses a range that begins at the lowest piece, with its pages at the recorded distances. Addresses that may
have been reserved below the lowest piece are unknown. A piece of zero bytes marks the beginning of the range.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from memdiag.allocator.engine.blocks import insert_into_blocks, new_block
from memdiag.allocator.engine.driver import GRAIN, device_bytes
from memdiag.allocator.engine.memory import A_SEGMENT, FREE, LIVE, NONE, UNMAPPED, Nodes, State, more_nodes, new_node
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.engine.streams import start_waiting
from memdiag.allocator.versions.rules import BY_ADDRESS
from memdiag.allocator.workload import ALLOC, FREE_REQUESTED, Start, Workload
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

_NEVER_EMPTY = 1 << 40  # cudaMalloc_count of a private pool with expandable segments, which no snapshot contains


class Ranges(NamedTuple):
    """Ranges reserved from the driver, by address, and their mapped pieces in the same order. All int64.

    Attributes:
        base, length, page, place: Per range. Page 0: not an expandable segment; place: sort key among equal blocks.
        pool, small, stream: Per range.
        first: Per range, index of its first piece; one more entry for the end.
        piece_off, piece_size: Per piece, offset from the base and size in bytes.
        of_row, off_of_row: Per row of the start, its range and its offset in the range.
    """

    base: Array
    length: Array
    page: Array
    place: Array
    pool: Array
    small: Array
    stream: Array
    first: Array
    piece_off: Array
    piece_size: Array
    of_row: Array
    off_of_row: Array


class Blocks(NamedTuple):
    """Blocks of the start that are not free, by address. All int64; ``segment`` is a row of ``Ranges``."""

    segment: Array
    offset: Array
    size: Array
    tensor: Array
    requested: Array
    pending: Array


def ranges_of(start: Start, ties: str, small_page: int, large_page: int, reserve: int) -> Ranges:
    """Returns the ranges that contain the rows of ``start``."""
    rows = np.lexsort((start.size, start.base))
    lengths = {small: -(-reserve // page) * page for small, page in ((True, small_page), (False, large_page))}
    members: list[list[int]] = []
    last: dict[tuple[int, bool, int], int] = {}
    for row in rows.tolist():
        key = (int(start.pool[row]), bool(start.small[row]), int(start.stream[row]))
        known = last.get(key, -1) if start.expandable[row] else -1
        end = int(start.base[row] + start.size[row])
        if known >= 0 and end - int(start.base[members[known][0]]) <= lengths[key[1]]:
            members[known].append(row)
            continue
        if start.expandable[row]:
            last[key] = len(members)
        members.append([row])

    heads = np.array([rows_of[0] for rows_of in members], np.int64)
    expandable, small = start.expandable[heads], start.small[heads]
    page = np.where(expandable, np.where(small, small_page, large_page), 0)
    length = np.where(expandable, np.where(small, lengths[True], lengths[False]), start.size[heads])
    of_row, off_of_row = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    first = [0]
    offs: list[int] = []
    sizes: list[int] = []
    for number, rows_of in enumerate(members):
        for row in rows_of:
            off, size = int(start.base[row] - start.base[rows_of[0]]), int(start.size[row])
            of_row[row], off_of_row[row] = number, off
            if size and len(offs) > first[-1] and offs[-1] + sizes[-1] == off:
                sizes[-1] += size  # adjacent pieces are one
            elif size:
                offs.append(off)
                sizes.append(size)
        first.append(len(offs))
    order = np.array([min(int(start.order[row]) for row in rows_of) for rows_of in members], np.int64)
    place = start.base[heads].astype(np.int64)
    if ties != BY_ADDRESS:
        oldest = np.lexsort((place, order))
        spans = -(-length[oldest] // GRAIN) * GRAIN
        place[oldest] = np.cumsum(spans) - spans
    return Ranges(
        base=start.base[heads].astype(np.int64),
        length=length.astype(np.int64),
        page=page.astype(np.int64),
        place=place,
        pool=start.pool[heads].astype(np.int64),
        small=small.astype(np.int64),
        stream=start.stream[heads].astype(np.int64),
        first=np.array(first, np.int64),
        piece_off=np.array(offs, np.int64),
        piece_size=np.array(sizes, np.int64),
        of_row=of_row,
        off_of_row=off_of_row,
    )


def load_start(state: State, nodes: Nodes, where: Array, start: Start, ties: str) -> Nodes:
    """Loads ``start`` into a new model; returns its enlarged nodes."""
    device = int(state.device_total)
    reserve = min(device + device // 8, int(state.most_reserved))
    found = ranges_of(start, ties, int(state.small_page), int(state.large_page), reserve)
    num_nodes = len(found.base) + 2 * len(found.piece_off) + 2 * len(start.block_off) + 1
    more = more_nodes(nodes, int(state.fresh) + 3 * num_nodes + 4096)
    state.capacity = len(more)
    order = np.lexsort((start.block_off, start.base[start.block_range]))
    segment, offset = found.of_row[start.block_range], found.off_of_row[start.block_range] + start.block_off
    columns = (segment, offset, start.block_size, start.block_tensor, start.block_requested, start.block_pending)
    _load(state, more, where, found, Blocks(*(column[order].astype(np.int64) for column in columns)))
    ends = found.base + np.where(found.page > 0, found.length, -(-found.length // GRAIN) * GRAIN)
    if state.next_place >= 0:
        state.next_place = int((-(-found.length // GRAIN) * GRAIN).sum())
    state.next_address = max(int(state.next_address), -(-int(ends.max(initial=0)) // GRAIN) * GRAIN)
    return more


@lean_part
def _append(state: State, nodes: Nodes, segment: int, last: int, offset: int, size: int, kind: int) -> int:
    """Adds a block after ``last``, and inserts it into its set if it is idle."""
    block = new_block(state, nodes, segment, offset, size, kind)
    nodes[block].prev = last
    if last != NONE:
        nodes[last].next = block
    if kind <= FREE:
        insert_into_blocks(state, nodes, block)
    return block


@lean(plain_seconds=2e-5)
def _load(state: State, nodes: Nodes, where: Array, ranges: Ranges, blocks: Blocks) -> None:
    """Creates the nodes of segments and blocks and counts their bytes; fills ``where`` with each tensor's block."""
    b = 0
    for k in range(len(ranges.base)):
        segment = new_node(state, nodes)
        lane = lane_of(state, ranges.pool[k], ranges.small[k], ranges.stream[k])
        nodes[segment].number, nodes[segment].address = k, ranges.base[k]
        nodes[segment].page, nodes[segment].place = ranges.page[k], ranges.place[k]
        nodes[segment].length, nodes[segment].lane, nodes[segment].kind = ranges.length[k], lane, A_SEGMENT
        owner = nodes[lane].pool
        if nodes[owner].is_private:
            if nodes[owner].use_on_oom_turn and not nodes[owner].use_on_oom:
                state.num_use_on_oom_pools += 1
                nodes[owner].use_on_oom = nodes[owner].use_on_oom_turn
            nodes[owner].exists = 1
            nodes[owner].use_count = 1
            nodes[owner].cuda_malloc_count += 1 if ranges.page[k] == 0 else _NEVER_EMPTY
        at, last = 0, NONE
        for p in range(ranges.first[k], ranges.first[k + 1]):
            if ranges.piece_off[p] > at:
                last = _append(state, nodes, segment, last, at, ranges.piece_off[p] - at, UNMAPPED)
                at = ranges.piece_off[p]
            end = ranges.piece_off[p] + ranges.piece_size[p]
            state.reserved += ranges.piece_size[p]
            nodes[owner].held_bytes += ranges.piece_size[p]
            state.device_free -= device_bytes(ranges.piece_size[p], ranges.page[k])
            while b < len(blocks.offset) and blocks.segment[b] == k and blocks.offset[b] < end:
                if blocks.offset[b] > at:
                    last = _append(state, nodes, segment, last, at, blocks.offset[b] - at, FREE)
                last = _append(state, nodes, segment, last, blocks.offset[b], blocks.size[b], LIVE)
                nodes[last].tensor, nodes[last].requested_size, nodes[last].stream_uses = (
                    blocks.tensor[b],
                    blocks.requested[b],
                    NONE,
                )
                where[blocks.tensor[b]] = last
                state.active += blocks.size[b]
                state.requested += blocks.requested[b]
                if blocks.pending[b]:
                    start_waiting(state, nodes, last)
                else:
                    state.allocated += blocks.size[b]
                at = blocks.offset[b] + blocks.size[b]
                b += 1
            if at < end:
                last = _append(state, nodes, segment, last, at, end - at, FREE)
                at = end
        if at < ranges.length[k]:
            _append(state, nodes, segment, last, at, ranges.length[k] - at, UNMAPPED)
    state.num_segments = len(ranges.base)
    state.num_segments_before = len(ranges.base)


def with_start_allocated(workload: Workload) -> Workload:
    """Returns a workload with an empty initial state that first allocates the tensors of its start, by address."""
    start = workload.start
    rows = np.lexsort((start.block_off, start.base[start.block_range]))
    ranges = start.block_range[rows]
    allocated = {
        "op": np.full(len(rows), ALLOC, np.int8),
        "tensor": start.block_tensor[rows],
        "size": np.where(start.block_requested > 0, start.block_requested, start.block_size)[rows],
        "stream": start.stream[ranges],
        "pool": start.pool[ranges],
        "row": np.full(len(rows), -1, np.int64),
    }
    freed = rows[start.block_pending[rows]]
    pending = {
        "op": np.full(len(freed), FREE_REQUESTED, np.int8),
        "tensor": start.block_tensor[freed],
        "size": np.zeros(len(freed), np.int64),
        "stream": start.stream[start.block_range[freed]],
        "pool": np.full(len(freed), -1, np.int32),
        "row": np.full(len(freed), -1, np.int64),
    }
    columns = {name: np.concatenate((allocated[name], pending[name], getattr(workload, name))) for name in allocated}
    return replace(workload, start=Start(), **columns)
