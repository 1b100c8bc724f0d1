"""Releases memory to the driver: all cached blocks, oversize ones, or the oldest ones (CUDACachingAllocator.cpp)."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace
from memdiag.allocator.engine.driver import count_device_free
from memdiag.allocator.engine.expandable import unmap_block
from memdiag.allocator.engine.memory import NONE, UNMAPPED_SET, Nodes, State, drop_node
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.streams import synchronize_and_free_events
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import SEGMENT_FREE
from memdiag.trace.table import Array


@lean_part
def lane_of(state: State, pool: int, small: int, stream: int) -> int:
    """Returns the lane of a pool (its index), half and stream."""
    # times two, because the node after a lane is its UNMAPPED_SET
    return state.lanes + 2 * ((pool * 2 + small) * state.num_streams + stream)


@lean_part
def is_unsplit(nodes: Nodes, block: int) -> bool:
    """Returns whether a block is a whole segment (!block->is_split())."""
    return nodes[block].prev == NONE and nodes[block].next == NONE


@lean_part
def is_expandable(nodes: Nodes, block: int) -> bool:
    """Returns whether a block belongs to an expandable segment."""
    return nodes[nodes[block].segment].page != 0


@lean_part
def release_block(state: State, nodes: Nodes, log: Array, block: int) -> None:
    """Releases a free block, which must be a whole segment, to the driver (release_block).

    The allocator fails an assertion for a block of an expandable segment.
    """
    if is_expandable(nodes, block):
        state.is_broken = 1
        return
    if not is_unsplit(nodes, block):
        # with pages of 1 GiB, an oversize block can be the remainder of a segment, which the driver refuses to free
        state.is_broken = 1
        return
    remove(nodes, block)
    record_trace(state, nodes, log, SEGMENT_FREE, block, nodes[block].size, -1)
    count_device_free(state, nodes, nodes[block].lane, nodes[block].size, nodes[nodes[block].segment].page)
    drop_node(state, nodes, block)


@lean_part
def release_blocks(state: State, nodes: Nodes, log: Array, pool: int, small: int) -> None:
    """Releases one half of a pool (release_blocks): whole segments, then pages of expandable ones, in set order."""
    num_expandable = 0
    for stream in range(state.num_streams):
        lane = lane_of(state, pool, small, stream)
        block = nodes[lane].succ
        while block != lane and not state.is_broken:
            following = nodes[block].succ
            if is_expandable(nodes, block):
                num_expandable += 1
            elif is_unsplit(nodes, block):
                release_block(state, nodes, log, block)
            block = following
    if num_expandable == 0:
        return
    for stream in range(state.num_streams):
        lane = lane_of(state, pool, small, stream)
        block = nodes[lane].succ
        while block != lane and not state.is_broken:
            # parts that stay mapped are smaller than the block, so they are inserted before it
            following = nodes[block].succ
            if is_expandable(nodes, block):
                unmap_block(state, nodes, log, block)
            block = following


@lean_part
def release_private_pool(state: State, nodes: Nodes, log: Array, index: int) -> None:
    """Releases the cached blocks of a released private pool, and deletes the pool if it has no segments left.

    This happens in release_cached_blocks and empty_cache.
    """
    pool = state.pools + index
    release_blocks(state, nodes, log, index, 1)
    release_blocks(state, nodes, log, index, 0)
    if nodes[pool].cuda_malloc_count == 0 and not state.is_broken:
        nodes[pool].is_freeable = 0
        nodes[pool].exists = 0
        if nodes[pool].held_bytes:  # cudaMalloc_count was wrong: the allocator deletes a pool that still has blocks
            state.is_broken = 1
            return
        for lane in range(lane_of(state, index, 0, 0), lane_of(state, index + 1, 0, 0), 2):
            unmapped = nodes[lane + UNMAPPED_SET].succ
            # reserved ranges without mapped pages are released with the pool
            while unmapped != lane + UNMAPPED_SET:
                following = nodes[unmapped].succ
                remove(nodes, unmapped)
                drop_node(state, nodes, unmapped)
                unmapped = following


@lean_part
def release_cached_blocks(state: State, nodes: Nodes, log: Array) -> None:
    """Waits for all events, then releases the default pool and each released private pool (release_cached_blocks)."""
    synchronize_and_free_events(state, nodes, log, NONE)
    release_blocks(state, nodes, log, 0, 0)
    release_blocks(state, nodes, log, 0, 1)
    for index in range(1, state.num_pools):
        if nodes[state.pools + index].is_freeable:
            release_private_pool(state, nodes, log, index)


@lean_part
def release_available_cached_blocks(state: State, nodes: Nodes, log: Array, lane: int, size: int) -> bool:
    """Releases oversize blocks if max_split_size_mb is set; returns whether it released enough.

    It releases one block that is large enough, else the largest ones until their sum suffices
    (release_available_cached_blocks).
    """
    if not state.split_is_limited:
        return False
    wanted, released = max(size, state.max_split_size), 0
    block = lower_bound(nodes, lane, wanted)
    if block != lane and (state.collects_expandable or not is_expandable(nodes, block)):
        release_block(state, nodes, log, block)
        return True
    block = nodes[lane].pred
    while block != lane and released < wanted and nodes[block].size >= state.max_split_size and not state.is_broken:
        following = nodes[block].pred
        if state.collects_expandable or not is_expandable(nodes, block):
            released += nodes[block].size
            release_block(state, nodes, log, block)
        block = following
    return released >= wanted


@lean_part
def garbage_collect_cached_blocks(state: State, nodes: Nodes, log: Array) -> None:
    """Releases the oldest free segments of the large default pool (garbage_collect_cached_blocks).

    The age of a block is the number of searches of the pool since the block became free. Each pass releases all blocks
    that are at least as old as the average, even if fewer would suffice.
    """
    target, reclaimed = state.reserved - state.gc_begins_at, 0
    if target <= 0:
        return
    ages, count = 0, 0
    for stream in range(state.num_streams):
        lane = lane_of(state, 0, 0, stream)
        block = nodes[lane].succ
        while block != lane:
            if is_unsplit(nodes, block):
                ages += state.get_free_blocks_call_count - nodes[block].gc_count_base
                count += 1
            block = nodes[block].succ
    freed = True
    while reclaimed < target and freed and count > 0:
        average, freed = ages / count, False
        for stream in range(state.num_streams):
            lane = lane_of(state, 0, 0, stream)
            block = nodes[lane].succ
            while block != lane:
                following = nodes[block].succ
                age = state.get_free_blocks_call_count - nodes[block].gc_count_base
                if (
                    is_unsplit(nodes, block)
                    and (state.collects_expandable or not is_expandable(nodes, block))
                    and age >= average
                ):
                    freed, reclaimed, ages, count = True, reclaimed + nodes[block].size, ages - age, count - 1
                    release_block(state, nodes, log, block)
                block = following
