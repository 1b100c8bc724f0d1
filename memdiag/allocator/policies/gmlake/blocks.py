"""GMLake's blocks: primitive blocks, which own memory, and stitched blocks, which map several primitive blocks.

A large tensor uses whole chunks of 2 MiB. Adjacent free chunks form one free block, as in the caching allocator, whose
nodes and ordered sets are used here (``memdiag.allocator.engine``). A tensor in a stitched block has several primitive
blocks, linked by ``next_primitive``. A stitched block outlives its tensor, and can be reused when all its chunks are
free. ``GMLake.used`` tracks the use of each chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memdiag.allocator.engine.blocks import insert_into_blocks, split_tail, try_merge_blocks
from memdiag.allocator.engine.memory import (
    A_PART,
    A_STITCHED_BLOCK,
    FREE,
    LIVE,
    NONE,
    Nodes,
    State,
    drop_node,
    new_node,
    record_type,
)
from memdiag.allocator.engine.ordered import insert, lower_bound, remove
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

CHUNK = 2 << 20
# State of a stitched block (``nodes[x].use``). DOOMED: a tensor still uses it, but a part of it was released to the
# driver.
IDLE, IN_USE, DOOMED = range(3)
STITCHING = record_type(
    # settings
    "frag_limit",
    "level",
    "collect_above",
    "adds_missing",
    # state
    "heads",  # first of the sets of idle stitched blocks, one for each stream
    "newest",  # the newest stitched block
    "next_chunk",  # number of the next chunk
    "largest",  # chunks that the largest request needs
    "last_waiting",  # the last tensor whose free waits for other streams; -1: none
    "first_waiting",  # the first one
    # counters
    "stitched_bytes",
    "peak_stitched",
    "num_stitched",
    "num_reused",
    "num_created",
    "num_mapped",
    "num_unmapped",
    "num_unfused",
)
# Fields of a tensor: its first primitive block (NONE: it has no memory), its stitched block, allocated and requested
# bytes, whether its free waits for other streams, and its neighbours in the list of waiting tensors (-1: none).
TENSOR = record_type("first", "stitched", "size", "requested_size", "waits", "before", "after")


class GMLake(NamedTuple):
    """GMLake's state in addition to the nodes.

    Attributes:
        stitching: Settings and counters.
        used: Per chunk, whether a tensor uses it (int8).
        tensors: Records of type TENSOR.
        most: Per allocation, size of the largest stitched block that may serve it.
    """

    stitching: Any
    used: Array
    tensors: Any
    most: Array


@lean_part
def set_used(nodes: Nodes, gmlake: GMLake, block: int, value: int) -> None:
    """Marks the chunks of a large block as used (1) or free (0)."""
    first = nodes[nodes[block].segment].first_chunk + nodes[block].offset // CHUNK
    for chunk in range(first, first + nodes[block].size // CHUNK):
        gmlake.used[chunk] = value


@lean_part
def free_primitive_block(state: State, nodes: Nodes, block: int) -> None:
    """Makes a block free and merges it with its neighbours."""
    segment = nodes[block].segment
    nodes[block].kind = FREE
    merged = try_merge_blocks(state, nodes, block)
    if nodes[merged].prev == NONE:
        nodes[segment].first_block = merged


@lean_part
def take_primitive_block(state: State, nodes: Nodes, segment: int, offset: int, size: int) -> int:
    """Splits ``size`` bytes off the free block that contains them; returns them as a block in no set."""
    block = nodes[segment].first_block
    while nodes[block].offset + nodes[block].size <= offset:
        block = nodes[block].next
    remove(nodes, block)
    if nodes[block].offset < offset:
        head = block
        block = split_tail(state, nodes, head, offset - nodes[head].offset)
        insert_into_blocks(state, nodes, head)
    if nodes[block].size > size:
        insert_into_blocks(state, nodes, split_tail(state, nodes, block, size))
    return block


@lean_part
def _is_idle(nodes: Nodes, gmlake: GMLake, stitched: int) -> bool:
    """Returns whether all chunks of a stitched block are free."""
    part = nodes[stitched].first_part
    while part != NONE:
        first = nodes[nodes[part].segment].first_chunk + nodes[part].offset // CHUNK
        for chunk in range(first, first + nodes[part].size // CHUNK):
            if gmlake.used[chunk]:
                return False
        part = nodes[part].next
    return True


@lean_part
def reuse(state: State, nodes: Nodes, gmlake: GMLake, stream: int, size: int, most: int) -> tuple[int, int]:
    """Returns the smallest idle stitched block of ``size`` to ``most`` bytes, or NONE.

    The second value is the first primitive block that the request gets.
    """
    head = gmlake.stitching.heads + stream
    stitched = lower_bound(nodes, head, size)
    while stitched != head and nodes[stitched].size <= most:
        if _is_idle(nodes, gmlake, stitched):
            break
        stitched = nodes[stitched].succ
    if stitched == head or nodes[stitched].size > most:
        return NONE, NONE
    remove(nodes, stitched)
    nodes[stitched].use = IN_USE
    first, last, left = NONE, NONE, size
    part = nodes[stitched].first_part
    while left > 0:
        primitive = take_primitive_block(
            state, nodes, nodes[part].segment, nodes[part].offset, min(left, nodes[part].size)
        )
        left -= nodes[primitive].size
        nodes[primitive].next_primitive = NONE
        nodes[primitive].kind = LIVE
        if first == NONE:
            first = primitive
        else:
            nodes[last].next_primitive = primitive
        last = primitive
        part = nodes[part].next
    gmlake.stitching.num_reused += 1
    return stitched, first


@lean_part
def fuse(state: State, nodes: Nodes, gmlake: GMLake, lane: int, size: int) -> tuple[int, int]:
    """Maps free blocks, the largest first, into a new stitched block; returns it and its first primitive block.

    Returns NONE if there are fewer than two free blocks, or if their sum is too small.
    """
    if nodes[lane].succ == nodes[lane].pred:
        return NONE, NONE
    total, block = 0, nodes[lane].pred
    while block != lane and total < size:
        total += nodes[block].size
        block = nodes[block].pred
    if total < size:
        return NONE, NONE
    gmlake.stitching.num_stitched += 1
    stitched = new_node(state, nodes)
    nodes[stitched].kind, nodes[stitched].use, nodes[stitched].size = A_STITCHED_BLOCK, IN_USE, size
    nodes[stitched].key, nodes[stitched].tie = size, gmlake.stitching.num_stitched
    nodes[stitched].older, nodes[stitched].newer = gmlake.stitching.newest, NONE
    if gmlake.stitching.newest != NONE:
        nodes[gmlake.stitching.newest].newer = stitched
    gmlake.stitching.newest = stitched
    first, last, last_part, left = NONE, NONE, NONE, size
    block = nodes[lane].pred
    while left > 0:
        following = nodes[block].pred
        remove(nodes, block)
        if nodes[block].size > left:
            insert_into_blocks(state, nodes, split_tail(state, nodes, block, left))
        left -= nodes[block].size
        part = new_node(state, nodes)
        nodes[part].kind, nodes[part].next = A_PART, NONE
        nodes[part].segment, nodes[part].offset, nodes[part].size = (
            nodes[block].segment,
            nodes[block].offset,
            nodes[block].size,
        )
        nodes[block].next_primitive, nodes[block].kind = NONE, LIVE
        if first == NONE:
            first, nodes[stitched].first_part = block, part
        else:
            nodes[last].next_primitive, nodes[last_part].next = block, part
        last, last_part, block = block, part, following
    gmlake.stitching.num_mapped += size // CHUNK
    gmlake.stitching.stitched_bytes += size
    gmlake.stitching.peak_stitched = max(gmlake.stitching.peak_stitched, gmlake.stitching.stitched_bytes)
    return stitched, first


@lean_part
def free_stitched_block(state: State, nodes: Nodes, gmlake: GMLake, stitched: int, stream: int) -> None:
    """Frees a stitched block, which stays mapped for reuse."""
    if nodes[stitched].use == DOOMED:
        unfuse(state, nodes, gmlake, stitched)
        return
    nodes[stitched].use = IDLE
    insert(nodes, gmlake.stitching.heads + stream, stitched)


@lean_part
def unfuse(state: State, nodes: Nodes, gmlake: GMLake, stitched: int) -> None:
    """Unmaps a stitched block that is in no set."""
    part = nodes[stitched].first_part
    while part != NONE:
        following = nodes[part].next
        drop_node(state, nodes, part)
        part = following
    older, newer = nodes[stitched].older, nodes[stitched].newer
    if newer == NONE:
        gmlake.stitching.newest = older
    else:
        nodes[newer].older = older
    if older != NONE:
        nodes[older].newer = newer
    gmlake.stitching.stitched_bytes -= nodes[stitched].size
    gmlake.stitching.num_unmapped += nodes[stitched].size // CHUNK
    gmlake.stitching.num_unfused += 1
    drop_node(state, nodes, stitched)


@lean_part
def unfuse_idle(state: State, nodes: Nodes, gmlake: GMLake, only_released: bool) -> None:
    """Unmaps all stitched blocks without a tensor; with ``only_released``, those with a part released to the driver."""
    stitched = gmlake.stitching.newest
    while stitched != NONE:
        older = nodes[stitched].older
        is_hit = not only_released
        part = nodes[stitched].first_part
        while part != NONE and not is_hit:
            is_hit = nodes[nodes[part].segment].is_released != 0
            part = nodes[part].next
        if is_hit and nodes[stitched].use == IDLE:
            remove(nodes, stitched)
            unfuse(state, nodes, gmlake, stitched)
        elif is_hit and only_released:
            nodes[stitched].use = DOOMED
        stitched = older


@lean_part
def share(left: int, size: int, spare: int) -> int:
    """Returns the part of a tensor's unrequested bytes that is counted for a primitive block of ``size`` bytes."""
    most = size - CHUNK if size >= 2 * CHUNK else CHUNK // 2 - 1
    return spare if left == 0 else min(spare, most, CHUNK - 1)
