"""Expandable segments: a long range of addresses per lane, mapped page by page (CUDACachingAllocator.cpp, 2.1 on)."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import (
    insert_into_blocks,
    merge_unmapped,
    new_block,
    record_trace,
    split_tail,
    try_merge_blocks,
)
from memdiag.allocator.engine.driver import (
    count_device_alloc,
    count_device_free,
    device_bytes,
    new_segment,
    take_device_bytes,
)
from memdiag.allocator.engine.memory import (
    FREE,
    NONE,
    UNLIMITED,
    UNMAPPED,
    UNMAPPED_SET,
    Nodes,
    State,
    drop_node,
    round_up,
)
from memdiag.allocator.engine.ordered import remove
from memdiag.allocator.engine.streams import complete_stream
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import SEGMENT_MAP, SEGMENT_UNMAP
from memdiag.trace.table import Array


@lean_part
def has_available_address_space(nodes: Nodes, block: int, size: int) -> bool:
    """Returns whether the idle blocks from ``block`` on are large enough (has_available_address_space)."""
    room = 0
    while block != NONE and nodes[block].kind <= FREE and room < size:
        room += nodes[block].size
        block = nodes[block].next
    return room >= size


@lean_part
def try_allocate_expandable_block(state: State, nodes: Nodes, log: Array, lane: int, size: int) -> int:
    """Returns a free block of at least ``size`` bytes, in no set, with newly mapped pages at its end.

    Returns NONE if the device has too little memory. Models try_allocate_expandable_block and find_expandable_block:
    the block starts at the lowest unmapped block with enough address space from there on, or at the free block right
    before it.
    """
    found = NONE
    unmapped = nodes[lane + UNMAPPED_SET].succ
    while unmapped != lane + UNMAPPED_SET:
        before = nodes[unmapped].prev
        block = before if nodes[before].kind <= FREE else unmapped
        if has_available_address_space(nodes, block, size):
            found = block
            break
        unmapped = nodes[unmapped].succ
    if found == NONE:
        page = state.small_page if nodes[lane].is_small else state.large_page
        length = round_up(min(state.device_total + state.device_total // 8, state.most_reserved), page)
        # The allocator checks that expandable_segments_reserve suffices.
        if length < size and state.most_reserved < UNLIMITED:
            return NONE
        found = new_block(state, nodes, new_segment(state, nodes, lane, length, page), 0, length, UNMAPPED)
        insert_into_blocks(state, nodes, found)
    if nodes[found].kind == UNMAPPED:
        found = map_block(state, nodes, log, found, min(nodes[found].size, size))
    while found != NONE and nodes[found].size < size:  # mapped pages stay mapped if a later step fails
        following = nodes[found].next
        if following == NONE:
            return NONE
        found = map_block(state, nodes, log, following, min(nodes[following].size, size - nodes[found].size))
    if found != NONE:
        remove(nodes, found)
    return found


@lean_part
def map_block(state: State, nodes: Nodes, log: Array, unmapped: int, need: int) -> int:
    """Maps the first ``need`` bytes of an unmapped block in whole pages (map_block); returns the free block or NONE."""
    size = round_up(need, nodes[nodes[unmapped].segment].page)
    if not take_device_bytes(state, device_bytes(size, nodes[nodes[unmapped].segment].page)):
        return NONE
    remove(nodes, unmapped)
    if size < nodes[unmapped].size:
        insert_into_blocks(state, nodes, split_tail(state, nodes, unmapped, size))
    nodes[unmapped].kind = FREE
    record_trace(state, nodes, log, SEGMENT_MAP, unmapped, size, -1)
    count_device_alloc(state, size)
    nodes[nodes[nodes[unmapped].lane].pool].held_bytes += size
    return try_merge_blocks(state, nodes, unmapped)


@lean_part
def unmap_block(state: State, nodes: Nodes, log: Array, block: int) -> None:
    """Unmaps the whole pages within a free block (unmap_block); partial pages at its ends stay mapped and free."""
    segment = nodes[block].segment
    page, begin, block_end = nodes[segment].page, nodes[block].offset, nodes[block].offset + nodes[block].size
    start, end = round_up(begin, page), block_end // page * page
    if start >= end:
        return
    remove(nodes, block)
    if start > begin:
        head = block
        block = split_tail(state, nodes, head, start - begin)
        if state.ties_by_birth:  # as in a split, the original block becomes the upper part
            nodes[head].tie, nodes[block].tie = nodes[block].tie, nodes[head].tie
        insert_into_blocks(state, nodes, head)
    if end < block_end:
        insert_into_blocks(state, nodes, split_tail(state, nodes, block, end - start))
    size, lane = nodes[block].size, nodes[block].lane
    nodes[block].kind = UNMAPPED
    record_trace(state, nodes, log, SEGMENT_UNMAP, block, size, -1)
    # unmap first synchronizes the stream, so its events are complete in the next process_events
    complete_stream(state, nodes, nodes[lane].stream)
    merge_unmapped(state, nodes, block)
    count_device_free(state, nodes, lane, size, page)
    if nodes[block].prev == NONE and nodes[block].next == NONE:  # no page of the segment is mapped, so it is released
        remove(nodes, block)
        drop_node(state, nodes, block)
