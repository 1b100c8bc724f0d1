"""The driver: reserves memory in chunks of 2 MiB, and releases it together with affected stitched blocks."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import new_block, record_trace
from memdiag.allocator.engine.driver import (
    count_device_alloc,
    count_device_free,
    device_bytes,
    new_segment,
    take_device_bytes,
)
from memdiag.allocator.engine.memory import FREE, NONE, Nodes, State, drop_node
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import is_unsplit, lane_of
from memdiag.allocator.policies.gmlake.blocks import CHUNK, GMLake, unfuse_idle
from memdiag.allocator.policies.gmlake.waiting import process_events
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def release_block(state: State, nodes: Nodes, log: Array, gmlake: GMLake, block: int) -> None:
    """Releases a free block, which is a whole segment (release_block)."""
    segment, lane = nodes[block].segment, nodes[block].lane
    remove(nodes, block)
    record_trace(state, nodes, log, schema.SEGMENT_FREE, block, nodes[block].size, -1)
    count_device_free(state, nodes, lane, nodes[block].size, 0)
    nodes[segment].is_released = 1
    if not nodes[lane].is_small:
        gmlake.stitching.num_unmapped += nodes[block].size // CHUNK
    drop_node(state, nodes, block)


@lean_part
def release_cached_blocks(state: State, nodes: Nodes, log: Array, gmlake: GMLake) -> None:
    """Waits for other streams, then releases all free segments (release_cached_blocks)."""
    process_events(state, nodes, log, gmlake, True)
    before = state.num_device_free
    for small in range(2):
        for stream in range(state.num_streams):
            lane = lane_of(state, 0, small, stream)
            block = nodes[lane].succ
            while block != lane:
                following = nodes[block].succ
                if is_unsplit(nodes, block):
                    release_block(state, nodes, log, gmlake, block)
                block = following
    if state.num_device_free > before:
        unfuse_idle(state, nodes, gmlake, True)


@lean_part
def release_available_cached_blocks(
    state: State, nodes: Nodes, log: Array, gmlake: GMLake, lane: int, size: int
) -> bool:
    """Releases oversize blocks if max_split_size_mb is set; returns whether it released enough.

    This is release_available_cached_blocks.
    """
    if not state.split_is_limited:
        return False
    wanted, released, before = max(size, state.max_split_size), 0, state.num_device_free
    block = lower_bound(nodes, lane, wanted)
    if block != lane:
        # Stitching splits blocks of any size, so this block may be only a part of a segment, which cannot be released.
        if is_unsplit(nodes, block):
            released = nodes[block].size
            release_block(state, nodes, log, gmlake, block)
    else:
        block = nodes[lane].pred
        while block != lane and released < wanted and nodes[block].size >= state.max_split_size:
            following = nodes[block].pred
            if is_unsplit(nodes, block):
                released += nodes[block].size
                release_block(state, nodes, log, gmlake, block)
            block = following
    if state.num_device_free > before:
        unfuse_idle(state, nodes, gmlake, True)
    return released >= wanted


@lean_part
def new_primitive_block(state: State, nodes: Nodes, log: Array, gmlake: GMLake, lane: int, wanted: int) -> int:
    """Returns new memory as a free block in no set; NONE: out of memory."""
    if not take_device_bytes(state, device_bytes(wanted, 0)):
        return NONE
    count_device_alloc(state, wanted)
    segment = new_segment(state, nodes, lane, wanted, 0)
    block = new_block(state, nodes, segment, 0, wanted, FREE)
    nodes[segment].first_block, nodes[segment].is_released, nodes[segment].first_chunk = (
        block,
        0,
        gmlake.stitching.next_chunk,
    )
    if not nodes[lane].is_small:
        gmlake.stitching.next_chunk += wanted // CHUNK
        gmlake.stitching.num_created += wanted // CHUNK
        gmlake.stitching.num_mapped += wanted // CHUNK
    record_trace(state, nodes, log, schema.SEGMENT_ALLOC, block, wanted, -1)
    return block
