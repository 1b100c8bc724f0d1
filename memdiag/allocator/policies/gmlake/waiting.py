"""Frees: a tensor whose memory other streams still use waits for them, with all its primitive blocks."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace
from memdiag.allocator.engine.memory import AS_RECORDED, BY_NEXT_CALL, NONE, PENDING, Nodes, State, drop_node, new_node
from memdiag.allocator.policies.gmlake.blocks import GMLake, free_primitive_block, free_stitched_block, set_used
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def free_block(state: State, nodes: Nodes, log: Array, gmlake: GMLake, t: int) -> None:
    """Completes a free: the chunks become available, in any combination."""
    primitive, stream = gmlake.tensors[t].first, nodes[nodes[gmlake.tensors[t].first].lane].stream
    while primitive != NONE:
        following = nodes[primitive].next_primitive
        record_trace(state, nodes, log, schema.FREE_COMPLETED, primitive, nodes[primitive].requested_size, t)
        if not nodes[nodes[primitive].lane].is_small:
            set_used(nodes, gmlake, primitive, 0)
        free_primitive_block(state, nodes, primitive)
        primitive = following
    if gmlake.tensors[t].stitched != NONE:
        free_stitched_block(state, nodes, gmlake, gmlake.tensors[t].stitched, stream)
    state.active -= gmlake.tensors[t].size
    state.requested -= gmlake.tensors[t].requested_size
    gmlake.tensors[t].first = NONE


@lean_part
def _start_waiting(gmlake: GMLake, t: int) -> None:
    gmlake.tensors[t].waits, gmlake.tensors[t].before, gmlake.tensors[t].after = 1, gmlake.stitching.last_waiting, -1
    if gmlake.stitching.last_waiting >= 0:
        gmlake.tensors[gmlake.stitching.last_waiting].after = t
    else:
        gmlake.stitching.first_waiting = t
    gmlake.stitching.last_waiting = t


@lean_part
def stop_waiting(gmlake: GMLake, t: int) -> None:
    """Removes a tensor from the list of waiting tensors."""
    before, after = gmlake.tensors[t].before, gmlake.tensors[t].after
    if before >= 0:
        gmlake.tensors[before].after = after
    else:
        gmlake.stitching.first_waiting = after
    if after >= 0:
        gmlake.tensors[after].before = before
    else:
        gmlake.stitching.last_waiting = before
    gmlake.tensors[t].waits = 0


@lean_part
def process_events(state: State, nodes: Nodes, log: Array, gmlake: GMLake, by_force: bool) -> None:
    """Completes the frees of tensors whose events have completed; with ``by_force``, waits for all events."""
    t = gmlake.stitching.first_waiting if by_force or state.streams_finish != AS_RECORDED else -1
    while t >= 0:
        following = gmlake.tensors[t].after
        x, is_over = nodes[gmlake.tensors[t].first].stream_uses, True
        while x != NONE:
            stream = state.streams + nodes[x].used_stream
            is_over = is_over and (
                state.streams_finish == BY_NEXT_CALL or nodes[x].sequence <= nodes[stream].num_finished
            )
            x = nodes[x].next_event
        if by_force or (is_over and nodes[gmlake.tensors[t].first].stream_uses != NONE):
            drop_uses(state, nodes, gmlake.tensors[t].first)
            stop_waiting(gmlake, t)
            free_block(state, nodes, log, gmlake, t)
        t = following


@lean_part
def drop_uses(state: State, nodes: Nodes, block: int) -> None:
    """Removes the recorded stream uses of a block."""
    x = nodes[block].stream_uses
    while x != NONE:
        following = nodes[x].next_event
        drop_node(state, nodes, x)
        x = following
    nodes[block].stream_uses = NONE


@lean_part
def free(state: State, nodes: Nodes, log: Array, gmlake: GMLake, t: int, is_recorded: bool) -> None:
    """Frees a tensor; with ``is_recorded``, a later FREE_COMPLETED call completes the free."""
    first = gmlake.tensors[t].first
    state.allocated -= gmlake.tensors[t].size
    primitive = first
    while primitive != NONE:
        record_trace(state, nodes, log, schema.FREE_REQUESTED, primitive, nodes[primitive].requested_size, t)
        nodes[primitive].kind = PENDING
        primitive = nodes[primitive].next_primitive
    x = nodes[first].stream_uses
    if not is_recorded and x == NONE:
        free_block(state, nodes, log, gmlake, t)
        return
    while x != NONE:  # record an event on each stream, after its current work
        stream = state.streams + nodes[x].used_stream
        nodes[stream].num_issued += 1
        nodes[x].sequence = nodes[stream].num_issued
        x = nodes[x].next_event
    _start_waiting(gmlake, t)


@lean_part
def record_stream(state: State, nodes: Nodes, block: int, stream: int) -> None:
    """Records that another stream than its own uses the block."""
    if state.streams_finish == AS_RECORDED or stream == nodes[nodes[block].lane].stream:
        return
    x = nodes[block].stream_uses
    while x != NONE and nodes[x].used_stream != stream:
        x = nodes[x].next_event
    if x == NONE:
        x = new_node(state, nodes)
        nodes[x].used_stream, nodes[x].next_event = stream, nodes[block].stream_uses
        nodes[block].stream_uses = x
