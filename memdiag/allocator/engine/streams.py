"""Other streams: blocks freed while a stream still uses them wait for an event, one for each such stream."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace, try_merge_blocks

from memdiag.allocator.engine.memory import (  # isort: skip
    ACTIVE, AS_RECORDED, BLOCK, BY_NEXT_CALL, CAPTURED, CAPTURE_USES_COUNT, DEFERRED, DONE, EVENTS, FINISHED, FOLLOWING, FREE, HEAD,
    ISSUED, IS_BROKEN, LANE, NONE, NUM_SCOPES, NUM_STREAMS, OUTSTANDING, OWN_STREAM_COUNTS, PENDING, POOL, PRED, REQUESTED,
    REQUESTED_BYTES, ROW, SCOPE_IS_CAPTURE, SEQUENCE, SIZE, STATE, STREAM, STREAMS, SUCC, TAIL, TENSOR, USED_STREAM, USES, WAITING,
    drop_row, new_row,
)  # fmt: skip
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import FREE_COMPLETED
from memdiag.trace.table import Array


@lean_part
def free_block(r: Array, m: Array, log: Array, block: int) -> None:
    """Ends a free: the block can be found again."""
    record_trace(r, m, log, FREE_COMPLETED, block, m[block + REQUESTED], m[block + TENSOR])
    r[ACTIVE] -= m[block + SIZE]
    r[REQUESTED_BYTES] -= m[block + REQUESTED]
    m[block + STATE] = FREE
    try_merge_blocks(r, m, block)


@lean_part
def record_stream(r: Array, m: Array, block: int, stream: int) -> None:
    """Remembers that ``stream`` uses the block. CUDA leaves out the stream that it was allocated on; torch_npu does not."""
    if r[DONE] == AS_RECORDED or (stream == m[m[block + LANE] + STREAM] and not r[OWN_STREAM_COUNTS]):
        return
    x = m[block + USES]
    while x != NONE and m[x + USED_STREAM] != stream:
        x = m[x + FOLLOWING]
    if x == NONE:
        x = new_row(r, m)
        m[x + USED_STREAM], m[x + FOLLOWING], m[x + CAPTURED] = stream, m[block + USES], 0
        m[block + USES] = x
    if is_capturing(r) and not r[CAPTURE_USES_COUNT]:
        m[x + CAPTURED] = 1


@lean_part
def insert_events(r: Array, m: Array, block: int) -> None:
    """Queues one event on every stream that used the block, as of now."""
    x = m[block + USES]
    m[block + USES] = NONE
    while x != NONE:
        following = m[x + FOLLOWING]
        stream = r[STREAMS] + m[x + USED_STREAM] * ROW
        m[stream + ISSUED] += 1
        m[x + SEQUENCE], m[x + BLOCK], m[x + FOLLOWING] = m[stream + ISSUED], block, NONE
        if m[stream + HEAD] == NONE:
            m[stream + HEAD] = x
        else:
            m[m[stream + TAIL] + FOLLOWING] = x
        m[stream + TAIL] = x
        m[block + EVENTS] += 1
        r[OUTSTANDING] += 1
        x = following


@lean_part
def _finish_event(r: Array, m: Array, log: Array, event: int) -> None:
    """Counts an event as done."""
    block = m[event + BLOCK]
    drop_row(r, m, event)
    r[OUTSTANDING] -= 1
    m[block + EVENTS] -= 1
    if m[block + EVENTS] == 0:
        free_block(r, m, log, block)


@lean_part
def is_capturing(r: Array) -> bool:
    """Whether the allocator thinks that a graph is being captured: before 2.13 any open scope of a private pool counts as that."""
    return r[SCOPE_IS_CAPTURE] != 0 and r[NUM_SCOPES] > 0


@lean_part
def insert_events_deferred_until_no_capture(r: Array, m: Array, log: Array) -> None:
    """Goes on with what was freed in a capture: uses from within it are the graph's affair, the others get their events now."""
    block, last = NONE, r[DEFERRED]
    r[DEFERRED] = NONE
    while last != NONE:  # the list has the last one first
        before = m[last + SUCC]
        m[last + SUCC] = block
        block, last = last, before
    while block != NONE:
        following, x = m[block + SUCC], m[block + USES]
        m[block + USES] = NONE
        while x != NONE:
            after = m[x + FOLLOWING]
            if m[x + CAPTURED]:
                drop_row(r, m, x)
            else:
                m[x + FOLLOWING] = m[block + USES]
                m[block + USES] = x
            x = after
        if m[block + USES] == NONE:
            free_block(r, m, log, block)
        else:
            insert_events(r, m, block)
        block = following


@lean_part
def free_deferred_of_pool(r: Array, m: Array, log: Array, pool: int) -> None:
    """Frees blocks of a private pool whose end was put off, without waiting for anything."""
    block, others = NONE, NONE
    x = r[DEFERRED]
    while x != NONE:  # the list has the last one first
        following = m[x + SUCC]
        if m[m[x + LANE] + POOL] == pool:
            m[x + SUCC] = block
            block = x
        else:
            m[x + SUCC] = others
            others = x
        x = following
    r[DEFERRED] = NONE
    while others != NONE:
        following = m[others + SUCC]
        m[others + SUCC] = r[DEFERRED]
        r[DEFERRED] = others
        others = following
    while block != NONE:
        following, use_of = m[block + SUCC], m[block + USES]
        while use_of != NONE:
            after = m[use_of + FOLLOWING]
            drop_row(r, m, use_of)
            use_of = after
        m[block + USES] = NONE
        free_block(r, m, log, block)
        block = following


@lean_part
def process_events(r: Array, m: Array, log: Array) -> None:
    """Looks which events are done: of each stream in order, up to the first that is not. Every request for memory begins with this."""
    if is_capturing(r):
        return
    if r[DEFERRED] != NONE:
        insert_events_deferred_until_no_capture(r, m, log)
    if r[OUTSTANDING] == 0:
        return
    for s in range(r[NUM_STREAMS]):
        stream = r[STREAMS] + s * ROW
        event = m[stream + HEAD]
        while event != NONE and (r[DONE] == BY_NEXT_CALL or m[event + SEQUENCE] <= m[stream + FINISHED]):
            m[stream + HEAD] = m[event + FOLLOWING]
            _finish_event(r, m, log, event)
            event = m[stream + HEAD]


@lean_part
def synchronize_and_free_events(r: Array, m: Array, log: Array, pool: int) -> None:
    """Waits for all events (``pool``: only for those of its blocks), and so for the work before them on their streams."""
    if is_capturing(r):  # an assertion: in a capture nothing may be waited for
        r[IS_BROKEN] = 1
        return
    if r[DEFERRED] != NONE:
        insert_events_deferred_until_no_capture(r, m, log)
    if r[OUTSTANDING] > 0:
        for s in range(r[NUM_STREAMS]):
            stream = r[STREAMS] + s * ROW
            event, last = m[stream + HEAD], NONE
            while event != NONE:
                following = m[event + FOLLOWING]
                if pool == NONE or m[m[m[event + BLOCK] + LANE] + POOL] == pool:
                    m[stream + FINISHED] = max(m[stream + FINISHED], m[event + SEQUENCE])
                    if last == NONE:
                        m[stream + HEAD] = following
                    else:
                        m[last + FOLLOWING] = following
                    if following == NONE:
                        m[stream + TAIL] = last
                    _finish_event(r, m, log, event)
                else:
                    last = event
                event = following
    # Frees whose end only the recording knows: a wait ends them now.
    block = m[r[WAITING] + SUCC]
    while block != r[WAITING]:
        following = m[block + SUCC]
        if pool == NONE or m[m[block + LANE] + POOL] == pool:
            stop_waiting(m, block)
            free_block(r, m, log, block)
        block = following


@lean_part
def start_waiting(r: Array, m: Array, block: int) -> None:
    """Lets a freed block wait for the moment at which the recording has it free."""
    head = r[WAITING]
    last = m[head + PRED]
    m[block + PRED], m[block + SUCC] = last, head
    m[last + SUCC] = block
    m[head + PRED] = block
    m[block + STATE] = PENDING


@lean_part
def stop_waiting(m: Array, block: int) -> None:
    """Takes a block off that list."""
    before, after = m[block + PRED], m[block + SUCC]
    m[before + SUCC] = after
    m[after + PRED] = before


@lean_part
def complete_stream(r: Array, m: Array, stream: int) -> None:
    """Makes all work of a stream (-1: of all) done; the allocator sees that when it looks at its events."""
    for s in range(r[NUM_STREAMS]):
        if stream < 0 or s == stream:
            row = r[STREAMS] + s * ROW
            m[row + FINISHED] = m[row + ISSUED]
