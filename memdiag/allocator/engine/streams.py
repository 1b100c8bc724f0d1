"""Streams: a block freed while other streams use it waits for an event on each of them (CUDACachingAllocator.cpp)."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace, try_merge_blocks
from memdiag.allocator.engine.memory import (
    AS_RECORDED,
    BY_NEXT_CALL,
    FREE,
    NONE,
    PENDING,
    Nodes,
    State,
    drop_node,
    new_node,
)
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import FREE_COMPLETED
from memdiag.trace.table import Array


@lean_part
def free_block(state: State, nodes: Nodes, log: Array, block: int) -> None:
    """Completes a free (free_block): the block merges with its free neighbours and becomes available."""
    record_trace(state, nodes, log, FREE_COMPLETED, block, nodes[block].requested_size, nodes[block].tensor)
    state.active -= nodes[block].size
    state.requested -= nodes[block].requested_size
    nodes[block].kind = FREE
    try_merge_blocks(state, nodes, block)


@lean_part
def record_stream(state: State, nodes: Nodes, block: int, stream: int) -> None:
    """Records that ``stream`` uses the block (recordStream); CUDA ignores its own stream, torch_npu does not."""
    if state.streams_finish == AS_RECORDED or (
        stream == nodes[nodes[block].lane].stream and not state.own_stream_counts
    ):
        return
    x = nodes[block].stream_uses
    while x != NONE and nodes[x].used_stream != stream:
        x = nodes[x].next_event
    if x == NONE:
        x = new_node(state, nodes)
        nodes[x].used_stream, nodes[x].next_event, nodes[x].in_capture = stream, nodes[block].stream_uses, 0
        nodes[block].stream_uses = x
    if is_capturing(state) and not state.capture_uses_count:
        nodes[x].in_capture = 1


@lean_part
def insert_events(state: State, nodes: Nodes, block: int) -> None:
    """Records one event on every stream that used the block (insert_events)."""
    x = nodes[block].stream_uses
    nodes[block].stream_uses = NONE
    while x != NONE:
        following = nodes[x].next_event
        stream = state.streams + nodes[x].used_stream
        nodes[stream].num_issued += 1
        nodes[x].sequence, nodes[x].block, nodes[x].next_event = nodes[stream].num_issued, block, NONE
        if nodes[stream].first_event == NONE:
            nodes[stream].first_event = x
        else:
            nodes[nodes[stream].last_event].next_event = x
        nodes[stream].last_event = x
        nodes[block].event_count += 1
        state.num_events += 1
        x = following


@lean_part
def _finish_event(state: State, nodes: Nodes, log: Array, event: int) -> None:
    """Removes a completed event; after its last event, the block is freed (process_events)."""
    block = nodes[event].block
    drop_node(state, nodes, event)
    state.num_events -= 1
    nodes[block].event_count -= 1
    if nodes[block].event_count == 0:
        free_block(state, nodes, log, block)


@lean_part
def is_capturing(state: State) -> bool:
    """Returns whether the allocator assumes a graph capture: before 2.13, while any private pool's scope is open."""
    return state.scope_is_capture != 0 and state.num_scopes > 0


@lean_part
def insert_events_deferred_until_no_capture(state: State, nodes: Nodes, log: Array) -> None:
    """Continues frees that a capture deferred; streams that were used only within it get no events."""
    block, last = NONE, state.first_deferred
    state.first_deferred = NONE
    while last != NONE:  # the list has the last one first
        before = nodes[last].succ
        nodes[last].succ = block
        block, last = last, before
    while block != NONE:
        following, x = nodes[block].succ, nodes[block].stream_uses
        nodes[block].stream_uses = NONE
        while x != NONE:
            after = nodes[x].next_event
            if nodes[x].in_capture:
                drop_node(state, nodes, x)
            else:
                nodes[x].next_event = nodes[block].stream_uses
                nodes[block].stream_uses = x
            x = after
        if nodes[block].stream_uses == NONE:
            free_block(state, nodes, log, block)
        else:
            insert_events(state, nodes, block)
        block = following


@lean_part
def free_deferred_of_pool(state: State, nodes: Nodes, log: Array, pool: int) -> None:
    """Completes deferred frees of a private pool at the end of its scope (2.12, graph_capture_record_stream_reuse)."""
    block, others = NONE, NONE
    x = state.first_deferred
    while x != NONE:  # the list has the last one first
        following = nodes[x].succ
        if nodes[nodes[x].lane].pool == pool:
            nodes[x].succ = block
            block = x
        else:
            nodes[x].succ = others
            others = x
        x = following
    state.first_deferred = NONE
    while others != NONE:
        following = nodes[others].succ
        nodes[others].succ = state.first_deferred
        state.first_deferred = others
        others = following
    while block != NONE:
        following, use_of = nodes[block].succ, nodes[block].stream_uses
        while use_of != NONE:
            after = nodes[use_of].next_event
            drop_node(state, nodes, use_of)
            use_of = after
        nodes[block].stream_uses = NONE
        free_block(state, nodes, log, block)
        block = following


@lean_part
def process_events(state: State, nodes: Nodes, log: Array) -> None:
    """Completes frees with completed events (process_events), per stream in order, up to the first pending event."""
    if is_capturing(state):
        return
    if state.first_deferred != NONE:
        insert_events_deferred_until_no_capture(state, nodes, log)
    if state.num_events == 0:
        return
    for s in range(state.num_streams):
        stream = state.streams + s
        event = nodes[stream].first_event
        while event != NONE and (
            state.streams_finish == BY_NEXT_CALL or nodes[event].sequence <= nodes[stream].num_finished
        ):
            nodes[stream].first_event = nodes[event].next_event
            _finish_event(state, nodes, log, event)
            event = nodes[stream].first_event


@lean_part
def synchronize_and_free_events(state: State, nodes: Nodes, log: Array, pool: int) -> None:
    """Waits for all events, or those of one pool's blocks, and completes the frees (synchronize_and_free_events)."""
    if is_capturing(state):  # the allocator fails an assertion: a capture must not wait
        state.is_broken = 1
        return
    if state.first_deferred != NONE:
        insert_events_deferred_until_no_capture(state, nodes, log)
    if state.num_events > 0:
        for s in range(state.num_streams):
            stream = state.streams + s
            event, last = nodes[stream].first_event, NONE
            while event != NONE:
                following = nodes[event].next_event
                if pool == NONE or nodes[nodes[nodes[event].block].lane].pool == pool:
                    nodes[stream].num_finished = max(nodes[stream].num_finished, nodes[event].sequence)
                    if last == NONE:
                        nodes[stream].first_event = following
                    else:
                        nodes[last].next_event = following
                    if following == NONE:
                        nodes[stream].last_event = last
                    _finish_event(state, nodes, log, event)
                else:
                    last = event
                event = following
    # Frees that complete at a recorded position: a wait completes them now.
    block = nodes[state.waiting].succ
    while block != state.waiting:
        following = nodes[block].succ
        if pool == NONE or nodes[nodes[block].lane].pool == pool:
            stop_waiting(nodes, block)
            free_block(state, nodes, log, block)
        block = following


@lean_part
def start_waiting(state: State, nodes: Nodes, block: int) -> None:
    """Makes a freed block wait until the recorded completion of the free."""
    head = state.waiting
    last = nodes[head].pred
    nodes[block].pred, nodes[block].succ = last, head
    nodes[last].succ = block
    nodes[head].pred = block
    nodes[block].kind = PENDING


@lean_part
def stop_waiting(nodes: Nodes, block: int) -> None:
    """Removes a block from the list of waiting blocks."""
    before, after = nodes[block].pred, nodes[block].succ
    nodes[before].succ = after
    nodes[after].pred = before


@lean_part
def complete_stream(state: State, nodes: Nodes, stream: int) -> None:
    """Completes all work of a stream (-1: of all); the allocator notices it in process_events."""
    for s in range(state.num_streams):
        if stream < 0 or s == stream:
            nodes[state.streams + s].num_finished = nodes[state.streams + s].num_issued
