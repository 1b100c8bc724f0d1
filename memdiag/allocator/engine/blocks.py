"""Blocks: cut in two, joined with idle neighbours, put where they can be found, and written down in the log."""

from __future__ import annotations

from memdiag.allocator.engine.memory import (  # isort: skip
    ADDRESS, BIRTHS, BORN, CALL, FREE, HOLE, HOLES, INDEX, IS_LOGGED, KEY, LANE, LOG_ACTION, LOG_CALL, LOG_OFF, LOG_POOL, LOG_SEG,
    LOG_SIZE, LOG_STREAM, LOG_TENSOR, NEXT, NONE, NUMBER, NUM_LOGGED, OFF, PLACE, POOL, PREV, RANGE, SEARCHES, SIZE, STATE, STREAM, TIE,
    TIES_BY_BIRTH, drop_row, new_row,
)  # fmt: skip
from memdiag.allocator.engine.ordered import insert, remove, stays
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def record_trace(r: Array, m: Array, log: Array, action: int, block: int, size: int, tensor: int) -> None:
    """Writes an entry as the allocator would have traced it."""
    if r[IS_LOGGED]:
        at = r[NUM_LOGGED]
        r[NUM_LOGGED] = at + 1
        lane = m[block + LANE]
        log[LOG_ACTION, at], log[LOG_CALL, at] = action, r[CALL]
        log[LOG_SEG, at], log[LOG_OFF, at], log[LOG_SIZE, at] = m[m[block + RANGE] + NUMBER], m[block + OFF], size
        log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = m[lane + STREAM], m[m[lane + POOL] + INDEX], tensor


@lean_part
def new_block(r: Array, m: Array, segment: int, off: int, size: int, state: int) -> int:
    """Returns a block in a range, linked to no neighbour and in no set."""
    block = new_row(r, m)
    m[block + PREV], m[block + NEXT] = NONE, NONE
    m[block + SIZE], m[block + OFF] = size, off
    m[block + RANGE], m[block + LANE], m[block + STATE] = segment, m[segment + LANE], state
    if r[TIES_BY_BIRTH]:
        r[BIRTHS] += 1
        m[block + TIE] = r[BIRTHS]
    return block


@lean_part
def split_tail(r: Array, m: Array, block: int, size: int) -> int:
    """Shortens ``block`` to its first ``size`` bytes; returns the rest as a block of its own, in no set."""
    rest = new_block(r, m, m[block + RANGE], m[block + OFF] + size, m[block + SIZE] - size, m[block + STATE])
    following = m[block + NEXT]
    m[rest + PREV], m[rest + NEXT] = block, following
    m[following + PREV] = rest
    m[block + NEXT] = rest
    m[block + SIZE] = size
    return rest


@lean_part
def insert_into_blocks(r: Array, m: Array, block: int) -> None:
    """Puts an idle block into its set. Returning to the free blocks makes it young again for the garbage collector."""
    segment, lane = m[block + RANGE], m[block + LANE]
    if m[block + STATE] == FREE:
        m[block + KEY] = m[block + SIZE]
        if not r[TIES_BY_BIRTH]:
            m[block + TIE] = m[segment + PLACE] + m[block + OFF]
        m[block + BORN] = r[SEARCHES]
        insert(m, lane, block)
    else:
        m[block + KEY] = m[segment + ADDRESS] + m[block + OFF]
        insert(m, lane + HOLES, block)


@lean_part
def resize(r: Array, m: Array, block: int, off: int, size: int, birth: int) -> None:
    """Changes a free block within its set, as if it had been taken out and put back; it often stays at its place among the others."""
    m[block + OFF], m[block + SIZE] = off, size
    tie = birth if r[TIES_BY_BIRTH] else m[m[block + RANGE] + PLACE] + off
    lane = m[block + LANE]
    if stays(m, lane, block, size, tie):
        m[block + KEY], m[block + TIE], m[block + BORN] = size, tie, r[SEARCHES]
    else:
        remove(m, block)
        m[block + TIE] = tie
        insert_into_blocks(r, m, block)


@lean_part
def try_merge_blocks(r: Array, m: Array, block: int) -> int:
    """Joins ``block``, which is free and in no set, with its free neighbours, and puts it into its set; returns the row that it is now."""
    before, after = m[block + PREV], m[block + NEXT]
    off, size = m[block + OFF], m[block + SIZE]
    if m[after + STATE] == FREE:
        size += m[after + SIZE]
        if m[before + STATE] == FREE:
            remove(m, after)
            _unlink(r, m, after)
        else:
            resize(r, m, after, off, size, m[block + TIE])
            _unlink(r, m, block)
            return after
    if m[before + STATE] == FREE:
        resize(r, m, before, m[before + OFF], size + m[before + SIZE], m[block + TIE])
        _unlink(r, m, block)
        return before
    insert_into_blocks(r, m, block)
    return block


@lean_part
def merge_unmapped(r: Array, m: Array, block: int) -> None:
    """The same for a block that has lost its memory; its row stays."""
    other = m[block + PREV]
    if m[other + STATE] == HOLE:
        remove(m, other)
        m[block + OFF] = m[other + OFF]
        m[block + SIZE] += m[other + SIZE]
        _unlink(r, m, other)
    other = m[block + NEXT]
    if m[other + STATE] == HOLE:
        remove(m, other)
        m[block + SIZE] += m[other + SIZE]
        _unlink(r, m, other)
    insert_into_blocks(r, m, block)


@lean_part
def _unlink(r: Array, m: Array, block: int) -> None:
    """Takes a block, which is in no set, out of its row of neighbours."""
    before, after = m[block + PREV], m[block + NEXT]
    m[before + NEXT] = after
    m[after + PREV] = before
    drop_row(r, m, block)
