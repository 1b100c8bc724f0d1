"""Expandable segments: one long range of addresses for a lane, with memory behind it page by page."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, merge_unmapped, new_block, record_trace, split_tail, try_merge_blocks
from memdiag.allocator.engine.driver import count_device_alloc, count_device_free, device_bytes, new_segment, take_device_bytes

from memdiag.allocator.engine.memory import (  # isort: skip
    DEVICE_BYTES, FREE, HELD, HOLE, HOLES, IS_SMALL, LANE, LARGE_PAGE, MOST_RESERVED, NEXT, NONE, OFF, PAGE, POOL, PREV, RANGE, SIZE,
    SMALL_PAGE, STATE, STREAM, SUCC, TIE, TIES_BY_BIRTH, UNLIMITED, drop_row, up,
)  # fmt: skip
from memdiag.allocator.engine.ordered import remove
from memdiag.allocator.engine.streams import complete_stream
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import SEGMENT_MAP, SEGMENT_UNMAP
from memdiag.trace.table import Array


@lean_part
def has_available_address_space(m: Array, block: int, size: int) -> bool:
    """Whether idle bytes from ``block`` on, free or without memory, are enough."""
    room = 0
    while block != NONE and m[block + STATE] <= FREE and room < size:
        room += m[block + SIZE]
        block = m[block + NEXT]
    return room >= size


@lean_part
def try_allocate_expandable_block(r: Array, m: Array, log: Array, lane: int, size: int) -> int:
    """Returns a free block of at least ``size`` bytes, in no set, with new memory at its end; NONE: the driver has not as much.

    The lowest hole wins, or the free block right before it, from which on there is room enough.
    """
    found = NONE
    hole = m[lane + HOLES + SUCC]
    while hole != lane + HOLES:
        before = m[hole + PREV]
        block = before if m[before + STATE] <= FREE else hole
        if has_available_address_space(m, block, size):
            found = block
            break
        hole = m[hole + SUCC]
    if found == NONE:
        page = r[SMALL_PAGE] if m[lane + IS_SMALL] else r[LARGE_PAGE]
        length = up(min(r[DEVICE_BYTES] + r[DEVICE_BYTES] // 8, r[MOST_RESERVED]), page)
        if length < size and r[MOST_RESERVED] < UNLIMITED:  # with the setting there is a look whether any range could hold it
            return NONE
        found = new_block(r, m, new_segment(r, m, lane, length, page), 0, length, HOLE)
        insert_into_blocks(r, m, found)
    if m[found + STATE] == HOLE:
        found = map_block(r, m, log, found, min(m[found + SIZE], size))
    while found != NONE and m[found + SIZE] < size:  # what was mapped stays mapped if a later step fails
        following = m[found + NEXT]
        if following == NONE:
            return NONE
        found = map_block(r, m, log, following, min(m[following + SIZE], size - m[found + SIZE]))
    if found != NONE:
        remove(m, found)
    return found


@lean_part
def map_block(r: Array, m: Array, log: Array, hole: int, need: int) -> int:
    """Puts memory behind the first ``need`` bytes of a hole, in whole pages; returns the free block they are in, NONE: no memory."""
    size = up(need, m[m[hole + RANGE] + PAGE])
    if not take_device_bytes(r, device_bytes(size, m[m[hole + RANGE] + PAGE])):
        return NONE
    remove(m, hole)
    if size < m[hole + SIZE]:
        insert_into_blocks(r, m, split_tail(r, m, hole, size))
    m[hole + STATE] = FREE
    record_trace(r, m, log, SEGMENT_MAP, hole, size, -1)
    count_device_alloc(r, size)
    m[m[m[hole + LANE] + POOL] + HELD] += size
    return try_merge_blocks(r, m, hole)


@lean_part
def unmap_block(r: Array, m: Array, log: Array, block: int) -> None:
    """Gives back the whole pages within a free block; a part of a page at either end stays, and stays free."""
    segment = m[block + RANGE]
    page, off, end_off = m[segment + PAGE], m[block + OFF], m[block + OFF] + m[block + SIZE]
    start, end = up(off, page), end_off // page * page
    if start >= end:
        return
    remove(m, block)
    if start > off:
        head = block
        block = split_tail(r, m, head, start - off)
        if r[TIES_BY_BIRTH]:  # here the block that is cut stays the upper part, too
            m[head + TIE], m[block + TIE] = m[block + TIE], m[head + TIE]
        insert_into_blocks(r, m, head)
    if end < end_off:
        insert_into_blocks(r, m, split_tail(r, m, block, end - start))
    size, lane = m[block + SIZE], m[block + LANE]
    m[block + STATE] = HOLE
    record_trace(r, m, log, SEGMENT_UNMAP, block, size, -1)
    complete_stream(r, m, m[lane + STREAM])  # unmapping waits for the stream first, so its events are seen as done later
    merge_unmapped(r, m, block)
    count_device_free(r, m, lane, size, page)
    if m[block + PREV] == NONE and m[block + NEXT] == NONE:  # nothing is left of the range
        remove(m, block)
        drop_row(r, m, block)
