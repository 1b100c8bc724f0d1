"""Frees, compiled: a tensor whose memory other streams still use waits until they are through, all its pieces together."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace

from memdiag.allocator.engine.memory import (  # isort: skip
    ACTIVE, ALLOCATED, AS_RECORDED, BY_NEXT_CALL, DONE, FINISHED, FOLLOWING, IS_SMALL, ISSUED, LANE, NONE, PENDING, REQUESTED,
    REQUESTED_BYTES, ROW, SEQUENCE, STATE, STREAM, STREAMS, USED_STREAM, USES, drop_row, new_row,
)  # fmt: skip
from memdiag.allocator.stitch.pieces import FIRST_WAITING, LAST_WAITING, NEXT_PIECE, lay_down, set_used, settle
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# Columns of ``life``, a row a tensor: its first piece (NONE: none), its stitched block, bytes of its block and bytes asked for, whether it
# waits for other streams, and its neighbours in the list of those that do (numbers of tensors; -1: none).
L_PIECE, L_STITCHED, L_BYTES, L_ASKED, L_WAITS, L_BEFORE, L_AFTER, NUM_LIFE = range(8)


@lean_part
def free_block(r: Array, m: Array, log: Array, k: Array, used: Array, life: Array, t: int, keep_log: bool) -> None:
    """Ends a free: the chunks can be found again, in any combination."""
    piece, stream = life[t, L_PIECE], m[m[life[t, L_PIECE] + LANE] + STREAM]
    while piece != NONE:
        following = m[piece + NEXT_PIECE]
        if keep_log:
            record_trace(r, m, log, schema.FREE_COMPLETED, piece, m[piece + REQUESTED], t)
        if not m[m[piece + LANE] + IS_SMALL]:
            set_used(m, used, piece, 0)
        settle(r, m, piece)
        piece = following
    if life[t, L_STITCHED] != NONE:
        lay_down(r, m, k, life[t, L_STITCHED], stream)
    r[ACTIVE] -= life[t, L_BYTES]
    r[REQUESTED_BYTES] -= life[t, L_ASKED]
    life[t, L_PIECE] = NONE


@lean_part
def _start_waiting(k: Array, life: Array, t: int) -> None:
    life[t, L_WAITS], life[t, L_BEFORE], life[t, L_AFTER] = 1, k[LAST_WAITING], -1
    if k[LAST_WAITING] >= 0:
        life[k[LAST_WAITING], L_AFTER] = t
    else:
        k[FIRST_WAITING] = t
    k[LAST_WAITING] = t


@lean_part
def stop_waiting(k: Array, life: Array, t: int) -> None:
    """Takes a tensor off the list of those that wait."""
    before, after = life[t, L_BEFORE], life[t, L_AFTER]
    if before >= 0:
        life[before, L_AFTER] = after
    else:
        k[FIRST_WAITING] = after
    if after >= 0:
        life[after, L_BEFORE] = before
    else:
        k[LAST_WAITING] = before
    life[t, L_WAITS] = 0


@lean_part
def process_events(r: Array, m: Array, log: Array, k: Array, used: Array, life: Array, keep_log: bool, by_force: bool) -> None:
    """Ends the frees of tensors whose streams are through; ``by_force``: waits for them."""
    t = k[FIRST_WAITING] if by_force or r[DONE] != AS_RECORDED else -1
    while t >= 0:
        following = life[t, L_AFTER]
        x, is_over = m[life[t, L_PIECE] + USES], True
        while x != NONE:
            stream = r[STREAMS] + m[x + USED_STREAM] * ROW
            is_over = is_over and (r[DONE] == BY_NEXT_CALL or m[x + SEQUENCE] <= m[stream + FINISHED])
            x = m[x + FOLLOWING]
        if by_force or (is_over and m[life[t, L_PIECE] + USES] != NONE):
            drop_uses(r, m, life[t, L_PIECE])
            stop_waiting(k, life, t)
            free_block(r, m, log, k, used, life, t, keep_log)
        t = following


@lean_part
def drop_uses(r: Array, m: Array, block: int) -> None:
    """Forgets which other streams use a block."""
    x = m[block + USES]
    while x != NONE:
        following = m[x + FOLLOWING]
        drop_row(r, m, x)
        x = following
    m[block + USES] = NONE


@lean_part
def free(r: Array, m: Array, log: Array, k: Array, used: Array, life: Array, t: int, recorded: bool, keep_log: bool) -> None:
    """Takes a tensor's memory back. ``recorded``: it is free again only when the recording says so."""
    first = life[t, L_PIECE]
    r[ALLOCATED] -= life[t, L_BYTES]
    piece = first
    while piece != NONE:
        if keep_log:
            record_trace(r, m, log, schema.FREE_REQUESTED, piece, m[piece + REQUESTED], t)
        m[piece + STATE] = PENDING
        piece = m[piece + NEXT_PIECE]
    x = m[first + USES]
    if not recorded and x == NONE:
        free_block(r, m, log, k, used, life, t, keep_log)
        return
    while x != NONE:  # an event on each stream, after what it does now
        stream = r[STREAMS] + m[x + USED_STREAM] * ROW
        m[stream + ISSUED] += 1
        m[x + SEQUENCE] = m[stream + ISSUED]
        x = m[x + FOLLOWING]
    _start_waiting(k, life, t)


@lean_part
def record_stream(r: Array, m: Array, block: int, stream: int) -> None:
    """Remembers that a stream other than its own uses the block."""
    if r[DONE] == AS_RECORDED or stream == m[m[block + LANE] + STREAM]:
        return
    x = m[block + USES]
    while x != NONE and m[x + USED_STREAM] != stream:
        x = m[x + FOLLOWING]
    if x == NONE:
        x = new_row(r, m)
        m[x + USED_STREAM], m[x + FOLLOWING] = stream, m[block + USES]
        m[block + USES] = x
