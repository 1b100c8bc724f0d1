"""Puts into the machine what an allocator held before the first call: ranges, blocks, and what is free between them.

A snapshot shows the mapped pieces of an expandable segment and not the range of addresses that was reserved for it. One that begins at the
lowest piece stands for it: pages lie as the pieces do, and what may have been reserved below is not known. A piece of no bytes says where
the range begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine.blocks import insert_into_blocks, new_block
from memdiag.allocator.engine.driver import GRAIN, device_bytes

from memdiag.allocator.engine.memory import (  # isort: skip
    ACTIVE, ADDRESS, ALLOCATED, A_RANGE, COUNT, FREE, FREE_BYTES, HELD, HOLE, IS_PRIVATE, KNOWN, LANE, LENGTH, LIVE, NEXT, NONE, NUMBER,
    NUM_BEFORE, NUM_RANGES, NUM_STAND_IN, PAGE, PLACE, POOL, PREV, REQUESTED, REQUESTED_BYTES, RESERVED, STANDS_IN, STATE, TENSOR, TURN,
    USERS, USES, new_row,
)  # fmt: skip
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.engine.streams import start_waiting
from memdiag.allocator.rules import BY_ADDRESS
from memdiag.allocator.workload import ALLOC, FREE_REQUESTED, Start, Workload
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

_NEVER_EMPTY = 1 << 40  # ranges of a private pool with expandable segments, whose number no snapshot tells


@dataclass(frozen=True)
class Ranges:
    """Ranges from the driver, by address, and the pieces of them that have memory, in the same order. All int64.

    Attributes:
        base, length, page, place: Per range; page 0: no expandable segment; place: its rank among equals, in bytes.
        pool, small, stream: Per range.
        first: Per range, the first of its pieces; one more for the end.
        piece_off, piece_size: Per piece, bytes from the base, bytes.
        of_row, off_of_row: Per row of the start: its range, and where in it the row begins.
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


def ranges_of(start: Start, ties: str, small_page: int, large_page: int, reserve: int) -> Ranges:
    """Returns the ranges that the rows of ``start`` are, or are pieces of."""
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
                sizes[-1] += size  # pieces that touch are one
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


def load_start(r: Array, m: Array, where: Array, start: Start, ties: str) -> Array:
    """Fills a new machine with ``start``; returns its memory, made larger."""
    device = int(r[mem.DEVICE_BYTES])
    reserve = min(device + device // 8, int(r[mem.MOST_RESERVED]))
    found = ranges_of(start, ties, int(r[mem.SMALL_PAGE]), int(r[mem.LARGE_PAGE]), reserve)
    num_rows = len(found.base) + 2 * len(found.piece_off) + 2 * len(start.block_off) + 1
    more = np.zeros(int(r[mem.FRESH]) + (3 * num_rows + 4096) * mem.ROW, np.int64)
    more[: len(m)] = m
    r[mem.CAPACITY] = len(more)
    blocks = np.lexsort((start.block_off, start.base[start.block_range]))
    segment, off = found.of_row[start.block_range], found.off_of_row[start.block_range] + start.block_off
    _load(
        r, more, where, found.base, found.length, found.page, found.place, found.pool, found.small, found.stream, found.first,
        found.piece_off, found.piece_size, segment[blocks], off[blocks], start.block_size[blocks].astype(np.int64),
        start.block_tensor[blocks].astype(np.int64), start.block_requested[blocks].astype(np.int64),
        start.block_pending[blocks].astype(np.int64),
    )  # fmt: skip
    ends = found.base + np.where(found.page > 0, found.length, -(-found.length // GRAIN) * GRAIN)
    if r[mem.NEXT_PLACE] >= 0:
        r[mem.NEXT_PLACE] = int((-(-found.length // GRAIN) * GRAIN).sum())
    r[mem.NEXT_ADDRESS] = max(int(r[mem.NEXT_ADDRESS]), -(-int(ends.max(initial=0)) // GRAIN) * GRAIN)
    return more


@lean_part
def _append(r: Array, m: Array, segment: int, last: int, off: int, size: int, state: int) -> int:
    """Adds a block behind ``last``; an idle one goes into its set."""
    block = new_block(r, m, segment, off, size, state)
    m[block + PREV] = last
    if last != NONE:
        m[last + NEXT] = block
    if state <= FREE:
        insert_into_blocks(r, m, block)
    return block


@lean
def _load(
    r: Array, m: Array, where: Array, base: Array, length: Array, page: Array, place: Array, pool: Array, small: Array, stream: Array,
    first: Array, piece_off: Array, piece_size: Array, block_segment: Array, block_off: Array, block_size: Array, block_tensor: Array,
    block_requested: Array, block_pending: Array,
) -> None:  # fmt: skip
    b = 0
    for k in range(len(base)):
        segment = new_row(r, m)
        lane = lane_of(r, pool[k], small[k], stream[k])
        m[segment + NUMBER], m[segment + PAGE], m[segment + PLACE], m[segment + ADDRESS] = k, page[k], place[k], base[k]
        m[segment + LENGTH], m[segment + LANE], m[segment + STATE] = length[k], lane, A_RANGE
        owner = m[lane + POOL]
        if m[owner + IS_PRIVATE]:
            if m[owner + TURN] and not m[owner + STANDS_IN]:
                r[NUM_STAND_IN] += 1
                m[owner + STANDS_IN] = m[owner + TURN]
            m[owner + KNOWN] = 1
            m[owner + USERS] = 1
            m[owner + COUNT] += 1 if page[k] == 0 else _NEVER_EMPTY
        at, last = 0, NONE
        for p in range(first[k], first[k + 1]):
            if piece_off[p] > at:
                last = _append(r, m, segment, last, at, piece_off[p] - at, HOLE)
                at = piece_off[p]
            end = piece_off[p] + piece_size[p]
            r[RESERVED] += piece_size[p]
            m[owner + HELD] += piece_size[p]
            r[FREE_BYTES] -= device_bytes(piece_size[p], page[k])
            while b < len(block_off) and block_segment[b] == k and block_off[b] < end:
                if block_off[b] > at:
                    last = _append(r, m, segment, last, at, block_off[b] - at, FREE)
                last = _append(r, m, segment, last, block_off[b], block_size[b], LIVE)
                m[last + TENSOR], m[last + REQUESTED], m[last + USES] = block_tensor[b], block_requested[b], NONE
                where[block_tensor[b]] = last
                r[ACTIVE] += block_size[b]
                r[REQUESTED_BYTES] += block_requested[b]
                if block_pending[b]:
                    start_waiting(r, m, last)
                else:
                    r[ALLOCATED] += block_size[b]
                at = block_off[b] + block_size[b]
                b += 1
            if at < end:
                last = _append(r, m, segment, last, at, end - at, FREE)
                at = end
        if at < length[k]:
            _append(r, m, segment, last, at, length[k] - at, HOLE)
    r[NUM_RANGES] = len(base)
    r[NUM_BEFORE] = len(base)


def with_start_allocated(workload: Workload) -> Workload:
    """Returns a workload that begins with nothing and allocates the tensors of its start first, by address."""
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
