"""The loop over the calls with GMLake's functions instead of those of the caching allocator.

A request searches for memory in the order of GMLake's malloc: a free block, a stitched block, fusing free blocks, and
new memory. If all fail, it releases cached memory and tries again.
"""

from __future__ import annotations

from typing import NamedTuple

from memdiag.allocator.engine.blocks import insert_into_blocks, record_oom, record_trace, split_tail
from memdiag.allocator.engine.loop import Calls, loop_of
from memdiag.allocator.engine.memory import LIVE, NONE, Nodes, State
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.policies.gmlake.blocks import CHUNK, GMLake, fuse, reuse, set_used, share, unfuse_idle
from memdiag.allocator.policies.gmlake.driver import (
    new_primitive_block,
    release_available_cached_blocks,
    release_cached_blocks,
)
from memdiag.allocator.policies.gmlake.waiting import (
    drop_uses,
    free,
    free_block,
    process_events,
    record_stream,
    stop_waiting,
)
from memdiag.allocator.result import OK, OUT_OF_MEMORY, SKIPPED
from memdiag.sizes.cuda import LARGE_SEGMENT, MIN_BLOCK, SMALL_LIMIT
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.compiled_sizes import get_allocation_size, oversize_from
from memdiag.trace.table import Array

# Three more rows of the results: how a request was served, number of its primitive blocks, and chunks mapped so far.
OUT_HOW, OUT_PRIMITIVES, OUT_MAPS = 12, 13, 14
NUM_OWN_RESULTS = 3
# How a request was served: by a free block, exact or split; by an existing or a new stitched block; by new memory,
# alone or stitched to free blocks. NOTHING: it failed.
EXACT, SPLIT, REUSED, STITCHED, NEW, ADDED, NOTHING = range(7)


@lean_part
def alloc_block(state: State, nodes: Nodes, log: Array, gmlake: GMLake, lane: int, size: int) -> tuple[int, int, int]:
    """Returns how new memory was obtained, the stitched block (or NONE), and the block.

    The block is the first primitive block of the stitched block, or a block in no set; NONE: out of memory.
    """
    wanted = get_allocation_size(size)
    if state.limit >= 0 and state.reserved + wanted > state.limit:
        return NOTHING, NONE, NONE
    if gmlake.stitching.adds_missing and not nodes[lane].is_small and size >= gmlake.stitching.frag_limit:
        free, block = 0, nodes[lane].succ
        while block != lane:
            free += nodes[block].size
            block = nodes[block].succ
        if free >= size:
            return NOTHING, NONE, NONE
        wanted = get_allocation_size(size - free)
        if wanted < size:
            block = new_primitive_block(state, nodes, log, gmlake, lane, wanted)
            if block == NONE:
                return NOTHING, NONE, NONE
            insert_into_blocks(state, nodes, block)
            stitched, primitive = fuse(state, nodes, gmlake, lane, size)
            return (NOTHING if stitched == NONE else ADDED), stitched, primitive
    block = new_primitive_block(state, nodes, log, gmlake, lane, wanted)
    return (NOTHING if block == NONE else NEW), NONE, block


@lean_part
def get_free_block(state: State, nodes: Nodes, gmlake: GMLake, lane: int, size: int, most: int) -> tuple[int, int, int]:
    """Returns the smallest sufficient free block, or else the smallest sufficient idle stitched block."""
    block = lower_bound(nodes, lane, size)
    if block == lane:
        if nodes[lane].is_small:
            return NOTHING, NONE, NONE
        stitched, primitive = reuse(state, nodes, gmlake, nodes[lane].stream, size, most)
        return (NOTHING if stitched == NONE else REUSED), stitched, primitive
    there = nodes[block].size
    if there >= oversize_from(size, state.max_split_size, LARGE_SEGMENT):
        return NOTHING, NONE, NONE
    remove(nodes, block)
    return (EXACT if there == size else SPLIT), NONE, block


@lean_part
def _malloc(
    state: State, nodes: Nodes, log: Array, gmlake: GMLake, lane: int, size: int, most: int
) -> tuple[int, int, int]:
    """Returns how memory was found, the stitched block (or NONE), and the block.

    The block is the first primitive block of the stitched block, or a block in no set that is not yet split.
    """
    may = not nodes[lane].is_small and size >= gmlake.stitching.frag_limit
    how, stitched, block = get_free_block(state, nodes, gmlake, lane, size, most)
    if block == NONE and may and gmlake.stitching.level <= 0:
        how = STITCHED
        stitched, block = fuse(state, nodes, gmlake, lane, size)
    if block == NONE:
        how, stitched, block = alloc_block(state, nodes, log, gmlake, lane, size)
    if block == NONE and release_available_cached_blocks(state, nodes, log, gmlake, lane, size):
        how, stitched, block = alloc_block(state, nodes, log, gmlake, lane, size)
    if block == NONE and may and gmlake.stitching.level <= 1:
        how = STITCHED
        stitched, block = fuse(state, nodes, gmlake, lane, size)
    if block == NONE:
        release_cached_blocks(state, nodes, log, gmlake)
        state.num_alloc_retries += 1
        how, stitched, block = alloc_block(state, nodes, log, gmlake, lane, size)
    if block == NONE and may and gmlake.stitching.level <= 2:
        how = STITCHED
        stitched, block = fuse(state, nodes, gmlake, lane, size)
    if block != NONE and stitched != NONE and gmlake.stitching.stitched_bytes > gmlake.stitching.collect_above:
        unfuse_idle(state, nodes, gmlake, False)
    return (NOTHING if block == NONE else how), stitched, block


class Request(NamedTuple):
    """A request: its tensor, the bytes of the program, and the bytes of its block or blocks."""

    tensor: int
    requested_size: int
    size: int


@lean_part
def _hand_out(
    state: State, nodes: Nodes, log: Array, gmlake: GMLake, request: Request, stitched: int, block: int
) -> int:
    """Assigns a block, split if necessary, or primitive blocks to a tensor; returns the number of blocks."""
    t, asked, size = request
    small = nodes[nodes[block].lane].is_small
    if stitched == NONE:
        nodes[block].next_primitive = NONE
        rest = nodes[block].size - size
        if rest >= MIN_BLOCK if small else (rest >= CHUNK and size < state.max_split_size):
            insert_into_blocks(state, nodes, split_tail(state, nodes, block, size))
    num, total, primitive = 0, 0, block
    while primitive != NONE:
        num, total, primitive = num + 1, total + nodes[primitive].size, nodes[primitive].next_primitive
    spare, left, primitive = total - asked, num, block
    while primitive != NONE:
        left -= 1
        unrequested = share(left, nodes[primitive].size, spare)
        spare -= unrequested
        following = nodes[primitive].next_primitive
        nodes[primitive].kind, nodes[primitive].tensor, nodes[primitive].stream_uses = LIVE, t, NONE
        nodes[primitive].requested_size = nodes[primitive].size - unrequested
        if not small:
            set_used(nodes, gmlake, primitive, 1)
        record_trace(state, nodes, log, schema.ALLOC, primitive, nodes[primitive].requested_size, t)
        primitive = following
    mine = gmlake.tensors[t]
    mine.first, mine.stitched, mine.size, mine.requested_size, mine.waits = block, stitched, total, asked, 0
    state.allocated += total
    state.active += total
    state.requested += asked
    return num


@lean_part
def has_own_room(gmlake: GMLake, i: int) -> bool:
    """Returns whether ``used`` has room for the chunks that any call can reserve."""
    return gmlake.stitching.next_chunk + gmlake.stitching.largest <= len(gmlake.used)


@lean_part
def serve(
    state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, gmlake: GMLake, i: int
) -> tuple[int, int, int]:
    """Serves a request; returns its status, the first primitive block, and the allocated bytes."""
    process_events(state, nodes, log, gmlake, False)
    tensor, size = calls.tensor[i], calls.rounded[i]
    if calls.size[i] <= 0 or tensor < 0:
        return SKIPPED, NONE, -1
    lane = lane_of(state, 0, 1 if size <= SMALL_LIMIT else 0, calls.stream[i])
    out[OUT_HOW, i], stitched, block = _malloc(state, nodes, log, gmlake, lane, size, gmlake.most[i])
    if block == NONE:
        state.num_ooms += 1
        record_oom(state, nodes, log, lane, size, tensor)
        return OUT_OF_MEMORY, NONE, -1
    request = Request(tensor, calls.size[i], size)
    out[OUT_PRIMITIVES, i] = _hand_out(state, nodes, log, gmlake, request, stitched, block)
    return OK, block, gmlake.tensors[tensor].size


@lean_part
def free_tensor(
    state: State, nodes: Nodes, log: Array, blocks: Array, gmlake: GMLake, i: int, tensor: int, is_recorded: bool
) -> int:
    """Frees a tensor; returns the status."""
    if tensor < 0 or gmlake.tensors[tensor].first == NONE or gmlake.tensors[tensor].waits:
        return SKIPPED
    free(state, nodes, log, gmlake, tensor, is_recorded)
    return OK


@lean_part
def complete_free(state: State, nodes: Nodes, log: Array, blocks: Array, gmlake: GMLake, tensor: int) -> int:
    """Completes a free at its recorded position; returns the status."""
    if tensor < 0 or gmlake.tensors[tensor].first == NONE or not gmlake.tensors[tensor].waits:
        return SKIPPED
    drop_uses(state, nodes, gmlake.tensors[tensor].first)
    stop_waiting(gmlake, tensor)
    free_block(state, nodes, log, gmlake, tensor)
    return OK


@lean_part
def use_on_stream(state: State, nodes: Nodes, blocks: Array, gmlake: GMLake, tensor: int, stream: int) -> int:
    """Records that a stream uses a tensor; returns the status."""
    if tensor < 0 or gmlake.tensors[tensor].first == NONE or gmlake.tensors[tensor].waits:
        return SKIPPED
    record_stream(state, nodes, gmlake.tensors[tensor].first, stream)
    return OK


@lean_part
def empty_cache(state: State, nodes: Nodes, log: Array, gmlake: GMLake) -> None:
    """Releases cached memory, and unmaps the stitched blocks that no tensor uses."""
    release_cached_blocks(state, nodes, log, gmlake)
    unfuse_idle(state, nodes, gmlake, False)


@lean_part
def finish(state: State, nodes: Nodes, log: Array, out: Array, gmlake: GMLake, i: int) -> None:
    """Writes the number of chunks mapped so far."""
    out[OUT_MAPS, i] = gmlake.stitching.num_mapped


run = loop_of(
    "run_gmlake",
    has_own_room=has_own_room,
    serve=serve,
    free_tensor=free_tensor,
    complete_free=complete_free,
    use_on_stream=use_on_stream,
    empty_cache=empty_cache,
    finish=finish,
)
