"""Splits and merges blocks, inserts them into the sets of free blocks, and logs them (CUDACachingAllocator.cpp)."""

from __future__ import annotations

from typing import NamedTuple

from memdiag.allocator.engine.memory import (
    FREE,
    LOG_ALL,
    LOG_SEGMENTS,
    NONE,
    UNMAPPED,
    UNMAPPED_SET,
    Nodes,
    State,
    drop_node,
    new_node,
)
from memdiag.allocator.engine.ordered import insert, remove, stays
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


class Entry(NamedTuple):
    """An entry of the log, without the call that made it.

    Attributes:
        action: As in ``schema``.
        seg, off: Number of the segment, and the offset in it.
        size: Bytes.
        stream, pool, tensor: Their indices; -1: none.
    """

    action: int
    seg: int
    off: int
    size: int
    stream: int
    pool: int
    tensor: int


@lean_part
def record_trace(state: State, nodes: Nodes, log: Array, action: int, block: int, size: int, tensor: int) -> None:
    """Adds an entry for a block to the log (record_trace)."""
    if state.log_level == LOG_ALL or (
        state.log_level == LOG_SEGMENTS and action >= schema.SEGMENT_ALLOC and action <= schema.SEGMENT_UNMAP
    ):
        segment, lane = nodes[block].segment, nodes[block].lane
        number, offset, stream = nodes[segment].number, nodes[block].offset, nodes[lane].stream
        add_entry(state, log, Entry(action, number, offset, size, stream, pool_index(nodes, lane), tensor))


@lean_part
def record_oom(state: State, nodes: Nodes, log: Array, lane: int, size: int, tensor: int) -> None:
    """Logs a failed request of ``size`` bytes (record_trace); the entry's offset is the free memory of the device."""
    if state.log_level == LOG_ALL:
        device_free = max(state.device_free, 0)
        stream, pool = nodes[lane].stream, pool_index(nodes, lane)
        add_entry(state, log, Entry(schema.OOM, -1, device_free, size, stream, pool, tensor))


@lean_part
def add_entry(state: State, log: Array, entry: Entry) -> None:
    """Adds an entry to the log; its rows are ``LOG_COLUMNS``."""
    at = state.num_logged
    state.num_logged = at + 1
    log[0, at], log[1, at], log[2, at], log[3, at] = entry.action, state.call, entry.seg, entry.off
    log[4, at], log[5, at], log[6, at], log[7, at] = entry.size, entry.stream, entry.pool, entry.tensor


@lean_part
def pool_index(nodes: Nodes, lane: int) -> int:
    """Returns the index of the pool of a lane."""
    return nodes[nodes[lane].pool].index


@lean_part
def new_block(state: State, nodes: Nodes, segment: int, offset: int, size: int, kind: int) -> int:
    """Returns a new block of a segment, without neighbours and in no set."""
    block = new_node(state, nodes)
    nodes[block].prev, nodes[block].next = NONE, NONE
    nodes[block].size, nodes[block].offset = size, offset
    nodes[block].segment, nodes[block].lane, nodes[block].kind = segment, nodes[segment].lane, kind
    if state.ties_by_birth:
        state.num_births += 1
        nodes[block].tie = state.num_births
    return block


@lean_part
def split_tail(state: State, nodes: Nodes, block: int, size: int) -> int:
    """Shortens ``block`` to its first ``size`` bytes; returns the remainder as a new block, in no set."""
    remainder = new_block(
        state, nodes, nodes[block].segment, nodes[block].offset + size, nodes[block].size - size, nodes[block].kind
    )
    following = nodes[block].next
    nodes[remainder].prev, nodes[remainder].next = block, following
    nodes[following].prev = remainder
    nodes[block].next = remainder
    nodes[block].size = size
    return remainder


@lean_part
def insert_into_blocks(state: State, nodes: Nodes, block: int) -> None:
    """Inserts an idle block into its set, free or unmapped, and resets its age (BlockPool::insert_into_blocks)."""
    segment, lane = nodes[block].segment, nodes[block].lane
    if nodes[block].kind == FREE:
        nodes[block].key = nodes[block].size
        if not state.ties_by_birth:
            nodes[block].tie = nodes[segment].place + nodes[block].offset
        nodes[block].gc_count_base = state.get_free_blocks_call_count
        insert(nodes, lane, block)
    else:
        nodes[block].key = nodes[segment].address + nodes[block].offset
        insert(nodes, lane + UNMAPPED_SET, block)


@lean_part
def resize(state: State, nodes: Nodes, block: int, offset: int, size: int, birth: int) -> None:
    """Changes offset and size of a free block, as if it were removed from its set and inserted again.

    If it keeps its position in the set, the set does not change.
    """
    nodes[block].offset, nodes[block].size = offset, size
    tie = birth if state.ties_by_birth else nodes[nodes[block].segment].place + offset
    lane = nodes[block].lane
    if stays(nodes, lane, block, size, tie):
        nodes[block].key, nodes[block].tie, nodes[block].gc_count_base = size, tie, state.get_free_blocks_call_count
    else:
        remove(nodes, block)
        nodes[block].tie = tie
        insert_into_blocks(state, nodes, block)


@lean_part
def try_merge_blocks(state: State, nodes: Nodes, block: int) -> int:
    """Merges a free block, which is in no set, with its free neighbours and inserts it; returns the merged node.

    This is try_merge_blocks for both neighbours, as called in free_block.
    """
    before, after = nodes[block].prev, nodes[block].next
    offset, size = nodes[block].offset, nodes[block].size
    if nodes[after].kind == FREE:
        size += nodes[after].size
        if nodes[before].kind == FREE:
            remove(nodes, after)
            _unlink(state, nodes, after)
        else:
            resize(state, nodes, after, offset, size, nodes[block].tie)
            _unlink(state, nodes, block)
            return after
    if nodes[before].kind == FREE:
        resize(state, nodes, before, nodes[before].offset, size + nodes[before].size, nodes[block].tie)
        _unlink(state, nodes, block)
        return before
    insert_into_blocks(state, nodes, block)
    return block


@lean_part
def merge_unmapped(state: State, nodes: Nodes, block: int) -> None:
    """Merges an unmapped block with its unmapped neighbours and inserts it, in the same node (unmap_block)."""
    other = nodes[block].prev
    if nodes[other].kind == UNMAPPED:
        remove(nodes, other)
        nodes[block].offset = nodes[other].offset
        nodes[block].size += nodes[other].size
        _unlink(state, nodes, other)
    other = nodes[block].next
    if nodes[other].kind == UNMAPPED:
        remove(nodes, other)
        nodes[block].size += nodes[other].size
        _unlink(state, nodes, other)
    insert_into_blocks(state, nodes, block)


@lean_part
def _unlink(state: State, nodes: Nodes, block: int) -> None:
    """Deletes a block, which is in no set, and links its neighbours."""
    before, after = nodes[block].prev, nodes[block].next
    nodes[before].next = after
    nodes[after].prev = before
    drop_node(state, nodes, block)
