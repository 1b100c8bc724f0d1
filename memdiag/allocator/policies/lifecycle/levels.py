"""Finds memory for a request: reuse with restrictions, new memory, reuse without them, release and retry. Compiled.

The own pool is the pool of the request's decided lifetime; the other pool is that of the other lifetime. The first
level has these restrictions on a free block:

a. A block that is never split does not serve a request below that size, nor a request that is at least that large but
   more than 20 MiB smaller than the block.
b. A large short-lived request outside of forward does not split a block of its own pool of 1.8 GB or more unless it
   uses nearly all of it.
c. A large short-lived request in a forward window takes no block from the long-lived pool.
d. A large long-lived request takes only a whole segment of exactly the size that it would have reserved.
e. A large long-lived request takes no block from the short-lived pool.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import new_block, record_trace
from memdiag.allocator.engine.driver import count_device_alloc, new_segment, take_device_bytes
from memdiag.allocator.engine.expandable import try_allocate_expandable_block
from memdiag.allocator.engine.memory import FREE, NONE, UNLIMITED, Nodes, State
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import is_unsplit, lane_of, release_available_cached_blocks, release_cached_blocks
from memdiag.allocator.policies.lifecycle import tables
from memdiag.allocator.policies.lifecycle.pools import DEFAULT, LARGE, LONG, SMALL, get_allocation_size
from memdiag.allocator.policies.lifecycle.tables import MindSpeed
from memdiag.sizes.cuda import LARGE_SEGMENT, SMALL_LIMIT
from memdiag.trace.compiled import lean_part
from memdiag.trace.compiled_sizes import oversize_from
from memdiag.trace.schema import SEGMENT_ALLOC
from memdiag.trace.table import Array

# Levels; NOWHERE if a request found no memory.
REUSE, NEW, ANY, LARGE_FOR_SMALL, AGAIN, NOWHERE = range(1, 7)

_VERY_LARGE = 1_800_000_000
_PREJUDGED = 200 << 20  # bytes; the allocator does not request new memory if less than this would remain free
_MUCH_LARGER = 1_395_864_371
_MOST_CANDIDATES = 3


@lean_part
def find(
    state: State, nodes: Nodes, log: Array, mindspeed: MindSpeed, size: int, own: int, stream: int
) -> tuple[int, int]:
    """Returns the level and a block for a request, in no set and not yet split; block NONE: out of memory."""
    half = SMALL if size <= SMALL_LIMIT else LARGE
    other = LONG - own
    for lifetime in (own, other):
        block = _allowed(state, nodes, mindspeed, size, lifetime, own, half, stream)
        if block != NONE:
            remove(nodes, block)
            return REUSE, block

    lane, needed = lane_of(state, own, half, stream), get_allocation_size(size, own)
    block = alloc_block(state, nodes, log, mindspeed, lane, size, needed, False)
    if block == NONE and release_available_cached_blocks(state, nodes, log, lane, size):
        block = alloc_block(state, nodes, log, mindspeed, lane, size, needed, False)
    if block != NONE:
        return NEW, block

    for lifetime in (other, own):
        if half == LARGE and lifetime == LONG and lifetime == other and mindspeed.pools.in_forward:
            continue
        block = _any(state, nodes, lane_of(state, lifetime, half, stream), size)
        if block != NONE:
            return ANY, block
    if half == SMALL:
        for lifetime in (own, other):
            block = _any(state, nodes, lane_of(state, lifetime, LARGE, stream), size)
            if block != NONE:
                return LARGE_FOR_SMALL, block

    release_cached_blocks(state, nodes, log)
    state.num_alloc_retries += 1
    # after the search in the large pools, the original requests a segment of 2 MiB for the large pool
    lane = lane_of(state, own, LARGE, stream)
    block = alloc_block(state, nodes, log, mindspeed, lane, size, needed, True)
    return (NOWHERE if block == NONE else AGAIN), block


@lean_part
def _is_oversize(state: State, there: int, size: int) -> bool:
    """Returns whether a free block of ``there`` bytes is too large for a request that may not split it (rule a)."""
    return there >= oversize_from(size, state.max_split_size, LARGE_SEGMENT)


@lean_part
def _any(state: State, nodes: Nodes, lane: int, size: int) -> int:
    """Takes the smallest sufficient free block of a lane out of its set, unless it is oversize; returns it or NONE."""
    block = lower_bound(nodes, lane, size)
    if block == lane or _is_oversize(state, nodes[block].size, size):
        return NONE
    remove(nodes, block)
    return block


@lean_part
def _is_forbidden(
    state: State, nodes: Nodes, mindspeed: MindSpeed, block: int, size: int, lifetime: int, own: int, half: int
) -> bool:
    """Returns whether a restriction forbids a free block at the first level."""
    there = nodes[block].size
    if _is_oversize(state, there, size):
        return True
    if half == SMALL:
        return False
    if own == DEFAULT:
        if mindspeed.pools.in_forward:
            return lifetime == LONG
        return lifetime == DEFAULT and there >= _VERY_LARGE and there - size >= LARGE_SEGMENT
    return lifetime == DEFAULT or there != get_allocation_size(size, own) or not is_unsplit(nodes, block)


@lean_part
def _allowed(
    state: State, nodes: Nodes, mindspeed: MindSpeed, size: int, lifetime: int, own: int, half: int, stream: int
) -> int:
    """Returns the block of a pool that the first level uses, or NONE.

    With ``open_memory_optimize``, it examines up to three blocks and accepts only one whose segment is much larger than
    the request. As in the source, an ordinary block ends the search without a result.
    """
    lane = lane_of(state, lifetime, half, stream)
    block = lower_bound(nodes, lane, size)
    if not mindspeed.pools.optimizes:
        return (
            NONE if block == lane or _is_forbidden(state, nodes, mindspeed, block, size, lifetime, own, half) else block
        )
    for _ in range(_MOST_CANDIDATES):
        if block == lane or _is_forbidden(state, nodes, mindspeed, block, size, lifetime, own, half):
            return NONE
        whole = nodes[nodes[block].segment].length
        if whole < size + _MUCH_LARGER:
            return NONE
        if not tables.expects(mindspeed, tables.STEP, whole):
            return block
        block = nodes[block].succ
    return NONE


@lean_part
def alloc_block(
    state: State, nodes: Nodes, log: Array, mindspeed: MindSpeed, lane: int, size: int, needed: int, retry: bool
) -> int:
    """Returns a new free block, in no set; NONE: the device, or a limit, has no more memory.

    Each attempt that the memory fraction allows reads the free memory of the device.
    """
    total = state.reserved + needed
    if not retry and mindspeed.pools.usable >= 0 and total + _PREJUDGED > mindspeed.pools.usable:
        return NONE
    if state.limit >= 0 and total > state.limit:
        return NONE
    if state.expandable:
        block = try_allocate_expandable_block(state, nodes, log, lane, size)
    elif total <= mindspeed.pools.alr_max and take_device_bytes(state, needed):
        count_device_alloc(state, needed)
        block = new_block(state, nodes, new_segment(state, nodes, lane, needed, 0), 0, needed, FREE)
        record_trace(state, nodes, log, SEGMENT_ALLOC, block, needed, -1)
    else:
        block = NONE
    if state.device_free < UNLIMITED // 2:  # the free memory of an unlimited device is unknown
        mindspeed.pools.usable = state.reserved + max(state.device_free, 0)
    return block
