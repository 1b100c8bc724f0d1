"""The driver as the allocator sees it: bytes in pages of 2 MiB, and addresses that go up and are never reused."""

from __future__ import annotations

from memdiag.allocator.engine.memory import A_SEGMENT, Nodes, State, new_node, round_up
from memdiag.trace.compiled import lean_part

GRAIN = 2 << 20


@lean_part
def take_device_bytes(state: State, wanted: int) -> bool:
    """Takes ``wanted`` bytes of device memory, whole pages; returns False if the device has fewer."""
    if wanted > state.device_free:
        return False
    state.device_free -= wanted
    return True


@lean_part
def new_segment(state: State, nodes: Nodes, lane: int, length: int, page: int) -> int:
    """Returns a new range of addresses, at the address that the driver gave while recording if that is known.

    If the lane of each recorded address is known, a lane gets only its own addresses: a recording does not show
    reserved ranges without mapped pages.
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
    """Counts memory that the driver gave."""
    state.reserved += size
    state.num_device_alloc += 1


@lean_part
def device_bytes(size: int, page: int) -> int:
    """Returns the device memory behind ``size`` bytes of a segment whose pages have ``page`` bytes (0: of cudaMalloc)."""
    return round_up(size, GRAIN) if page == 0 else size // page * round_up(page, GRAIN)


@lean_part
def count_device_free(state: State, nodes: Nodes, lane: int, size: int, page: int) -> None:
    """Counts memory that was returned to the driver."""
    state.reserved -= size
    nodes[nodes[lane].pool].held_bytes -= size
    state.device_free += device_bytes(size, page)
    pool = nodes[lane].pool
    if nodes[pool].is_private:
        # PrivatePool::cudaMalloc_count rises by one for each alloc_block that succeeds, however many ranges that
        # mapped, and falls by one for each range that is unmapped; the allocator asserts that it is above 0.
        if nodes[pool].cuda_malloc_count == 0:
            state.is_broken = 1
            return
        nodes[pool].cuda_malloc_count -= 1
    state.num_device_free += 1
