"""The driver's view of memory: bytes in pages of 2 MiB, and increasing addresses that are never reused."""

from __future__ import annotations

from memdiag.allocator.engine.memory import A_SEGMENT, Nodes, State, new_node, round_up
from memdiag.trace.compiled import lean_part

GRAIN = 2 << 20


@lean_part
def take_device_bytes(state: State, wanted: int) -> bool:
    """Reserves ``wanted`` bytes of device memory, in whole pages; returns False if the device has fewer."""
    if wanted > state.device_free:
        return False
    state.device_free -= wanted
    return True


@lean_part
def new_segment(state: State, nodes: Nodes, lane: int, length: int, page: int) -> int:
    """Returns a new range of addresses, at the recorded address if that is known.

    If the lanes of the recorded addresses are known, each lane uses only its own addresses, because a recording does
    not contain reserved ranges without mapped pages.
    """
    number = state.num_segments
    state.num_segments += 1
    segment = new_node(state, nodes)
    nodes[segment].number, nodes[segment].page, nodes[segment].length = number, page, length
    nodes[segment].lane, nodes[segment].kind = lane, A_SEGMENT
    known = number - state.num_segments_before
    if state.given_by_lane:
        known = nodes[lane].given_at
        while known < state.num_given and nodes[state.given + known].lane != lane:
            known += 1
        nodes[lane].given_at = known + 1
    if known < state.num_given and nodes[state.given + known].address >= 0:
        nodes[segment].address = nodes[state.given + known].address
    else:
        nodes[segment].address = state.next_address
        state.next_address += round_up(length, GRAIN)
    if state.next_place >= 0:
        nodes[segment].place = state.next_place
        state.next_place += round_up(length, GRAIN)
    else:
        nodes[segment].place = nodes[segment].address
    return segment


@lean_part
def count_device_alloc(state: State, size: int) -> None:
    """Counts memory that was reserved from the driver."""
    state.reserved += size
    state.num_device_alloc += 1


@lean_part
def device_bytes(size: int, page: int) -> int:
    """Returns the device memory that backs ``size`` bytes of a segment with pages of ``page`` bytes (0: cudaMalloc)."""
    return round_up(size, GRAIN) if page == 0 else size // page * round_up(page, GRAIN)


@lean_part
def count_device_free(state: State, nodes: Nodes, lane: int, size: int, page: int) -> None:
    """Counts memory that was returned to the driver."""
    state.reserved -= size
    nodes[nodes[lane].pool].held_bytes -= size
    state.device_free += device_bytes(size, page)
    pool = nodes[lane].pool
    if nodes[pool].is_private:
        # PrivatePool::cudaMalloc_count increases by one for each successful alloc_block, even if that mapped several
        # ranges, and decreases by one for each unmapped range. The allocator asserts that it is above 0.
        if nodes[pool].cuda_malloc_count == 0:
            state.is_broken = 1
            return
        nodes[pool].cuda_malloc_count -= 1
    state.num_device_free += 1
