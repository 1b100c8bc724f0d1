"""One request: search for a free block, then a new segment, then a new segment after releases.

Functions have the names of CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, new_block, record_oom, record_trace, resize, split_tail
from memdiag.allocator.engine.driver import count_device_alloc, device_bytes, new_segment, take_device_bytes
from memdiag.allocator.engine.expandable import try_allocate_expandable_block
from memdiag.allocator.engine.memory import FREE, NONE, UNMAPPED, Nodes, State, round_up
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import (
    garbage_collect_cached_blocks,
    is_expandable,
    lane_of,
    release_available_cached_blocks,
    release_cached_blocks,
)
from memdiag.allocator.engine.streams import is_capturing, process_events
from memdiag.sizes.npu import ALIGNED_FROM
from memdiag.trace.compiled import lean_part
from memdiag.trace.compiled_sizes import oversize_from, should_split
from memdiag.trace.schema import SEGMENT_ALLOC
from memdiag.trace.table import Array

REJECTED = -1
_MOST_EVENTS = 512  # multi_stream_lazy_reclaim processes events at once if more are outstanding


@lean_part
def _size_with_unmapped(nodes: Nodes, block: int) -> int:
    """Returns the size of a block including the unmapped block after it (get_free_block)."""
    following = nodes[block].next
    size: int = nodes[block].size
    return size + nodes[following].size if following != NONE and nodes[following].kind == UNMAPPED else size


@lean_part
def get_free_block(state: State, nodes: Nodes, lane: int, size: int) -> int:
    """Returns the best free block, still in its set (get_free_block); NONE: there is none, or it is refused."""
    # The clock of garbage collection counts searches of the large default pool, and only if there is a limit.
    if state.gc and state.limit >= 0 and lane < state.lanes + 2 * state.num_streams:
        state.get_free_blocks_call_count += 1
    block = lower_bound(nodes, lane, size)
    if block == lane:
        return NONE
    if state.expandable:
        # Prefers following blocks that are smaller including unmapped memory; stops at the first one that is not.
        following = nodes[block].succ
        while (
            following != lane
            and is_expandable(nodes, block)
            and _size_with_unmapped(nodes, following) < _size_with_unmapped(nodes, block)
        ):
            block, following = following, nodes[following].succ
    else:
        while is_expandable(nodes, block):
            block = nodes[block].succ
            if block == lane:
                return NONE
    found = nodes[block].size
    if found >= oversize_from(size, state.max_split_size, state.max_non_split_rounding):
        return NONE
    return block


@lean_part
def alloc_block(state: State, nodes: Nodes, log: Array, lane: int, size: int, segment_size: int) -> int:
    """Returns a free block of a new segment, in no set (alloc_block).

    Returns NONE if the limit or the device memory is too small, and REJECTED if throw_on_cudamalloc_oom (2.12 and
    later) refuses the request at once.
    """
    # The allocator compares the limit with a whole segment, even if an expandable one would grow by less.
    total = state.reserved + segment_size
    if state.limit >= 0 and total > state.limit:
        return NONE
    if state.reject_above >= 0 and total > state.reject_above:
        return REJECTED
    if state.expandable and (state.private_is_expandable or not nodes[nodes[lane].pool].is_private):
        block = try_allocate_expandable_block(state, nodes, log, lane, size)
    elif take_device_bytes(state, device_bytes(segment_size, 0)):
        count_device_alloc(state, segment_size)
        nodes[nodes[lane].pool].held_bytes += segment_size
        block = new_block(state, nodes, new_segment(state, nodes, lane, segment_size, 0), 0, segment_size, FREE)
        record_trace(state, nodes, log, SEGMENT_ALLOC, block, segment_size, -1)
    else:
        block = NONE
    if block != NONE and nodes[nodes[lane].pool].is_private:
        nodes[nodes[lane].pool].cuda_malloc_count += 1
    return block


@lean_part
def try_mempool_fallback(state: State, nodes: Nodes, lane: int, size: int) -> int:
    """Returns a free block of a private pool with use_on_oom for a request of the default pool, or NONE.

    The block stays in its set (try_mempool_fallback). The allocator opens a scope of each such pool for the search, and
    fails an assertion if the scope is already open. From 2.10 on, it also opens them with expandable segments, but
    finds no block.
    """
    turn = 0
    while not nodes[nodes[lane].pool].is_private:
        pool = NONE
        for index in range(1, state.num_pools):
            other = state.pools + index
            if nodes[other].use_on_oom > turn and (pool == NONE or nodes[other].use_on_oom < nodes[pool].use_on_oom):
                pool = other
        if pool == NONE:
            return NONE
        if not nodes[pool].exists:  # versions that also search released pools create the pool again, without users
            nodes[pool].exists, nodes[pool].use_count, nodes[pool].cuda_malloc_count, nodes[pool].is_freeable = (
                1,
                0,
                0,
                1,
            )
        elif nodes[pool].is_open or nodes[pool].use_count == 0:
            state.is_broken = 1
            return NONE
        if state.use_on_oom_expandable or not state.expandable:
            block = get_free_block(
                state, nodes, lane_of(state, nodes[pool].index, nodes[lane].is_small, nodes[lane].stream), size
            )
            if block != NONE:
                return block
        turn = nodes[pool].use_on_oom
    return NONE


@lean_part
def _alloc_after_miss(state: State, nodes: Nodes, log: Array, lane: int, size: int, segment_size: int) -> int:
    """Returns a block after an unsuccessful search (malloc); NONE: out of memory; REJECTED: refused at once.

    Like the allocator, it does not search the free blocks again, even if a release or an event has freed one that fits.
    """
    if state.gc and state.limit >= 0:
        garbage_collect_cached_blocks(state, nodes, log)
    block = alloc_block(state, nodes, log, lane, size, segment_size)
    if block == NONE and state.num_use_on_oom_pools and not state.use_on_oom_last:
        block = try_mempool_fallback(state, nodes, lane, size)
        if state.is_broken:
            return NONE
    is_captured = nodes[nodes[lane].pool].is_captured != 0
    if block == NONE and release_available_cached_blocks(state, nodes, log, lane, size):
        block = alloc_block(state, nodes, log, lane, size, segment_size)
    if block == NONE and not (is_captured or is_capturing(state)):
        release_cached_blocks(state, nodes, log)
        if state.is_broken:
            return NONE
        state.num_alloc_retries += 1
        block = alloc_block(state, nodes, log, lane, size, segment_size)
    if block == NONE and state.num_use_on_oom_pools and state.use_on_oom_last:
        block = try_mempool_fallback(state, nodes, lane, size)
    return block


@lean_part
def malloc(state: State, nodes: Nodes, log: Array, lane: int, size: int, segment_size: int, tensor: int) -> int:
    """Returns the block for a request of ``size`` rounded bytes (malloc, alloc_found_block); NONE: out of memory."""
    if (not state.is_lazy or state.num_events > _MOST_EVENTS) and not nodes[nodes[lane].pool].is_captured:
        process_events(state, nodes, log)
    if state.reuse_needs_capture and is_capturing(state):
        state.is_broken = 1
        return NONE
    block = get_free_block(state, nodes, lane, size)
    if block == NONE and state.is_lazy:
        process_events(state, nodes, log)
        block = get_free_block(state, nodes, lane, size)
    is_found = block != NONE
    if not is_found:
        block = _alloc_after_miss(state, nodes, log, lane, size, segment_size)
        is_found = block > NONE and nodes[block].lane != lane  # the block of a pool with use_on_oom
    if block <= NONE:
        if block == NONE:
            state.num_ooms += 1
            record_oom(state, nodes, log, lane, size, tensor)
        return NONE
    if state.expandable and state.alignment > 1 and size >= ALIGNED_FROM:
        address = nodes[nodes[block].segment].address + nodes[block].offset
        skipped = round_up(address, state.alignment) - address
        if skipped > 0 and skipped + size <= nodes[block].size:
            if is_found:
                remove(nodes, block)
                is_found = False
            head = block
            block = split_tail(state, nodes, head, skipped)
            insert_into_blocks(state, nodes, head)
    remaining = 0 if nodes[nodes[nodes[block].lane].pool].no_split else nodes[block].size - size
    if should_split(remaining, size, nodes[lane].is_small, state.expandable, state.max_split_size):
        return split_block(state, nodes, block, size, remaining, is_found)
    if is_found:
        remove(nodes, block)
    return block


@lean_part
def split_block(state: State, nodes: Nodes, block: int, size: int, remaining: int, is_found: bool) -> int:
    """Splits a block; returns its lower part, a new block; ``block`` becomes the remainder (alloc_found_block)."""
    offset, before = nodes[block].offset, nodes[block].prev
    low = new_block(state, nodes, nodes[block].segment, offset, size, FREE)
    nodes[low].prev, nodes[low].next = before, block
    nodes[before].next = low
    nodes[block].prev = low
    if is_found:
        resize(state, nodes, block, offset + size, remaining, nodes[block].tie)
    else:
        nodes[block].offset, nodes[block].size = offset + size, remaining
        insert_into_blocks(state, nodes, block)
    return low
