"""Blocks: cut in two, joined with idle neighbours, put where they can be found, and written down in the log."""

from __future__ import annotations

from memdiag.allocator.machine.memory import (  # isort: skip
    ADDRESS, BIRTHS, BORN, CALL, FREE, HOLES, INDEX, IS_LOGGED, KEY, LANE, LOG_ACTION, LOG_CALL, LOG_OFF, LOG_POOL, LOG_SEG, LOG_SIZE,
    LOG_STREAM, LOG_TENSOR, NEXT, NONE, NUMBER, NUM_LOGGED, OFF, PLACE, POOL, PREV, RANGE, SEARCHES, SIZE, STATE, STREAM, TIE,
    TIES_BY_BIRTH, drop_row, new_row,
)  # fmt: skip
from memdiag.allocator.machine.ordered import insert, remove
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array


@njit_part
def note(r: Array, m: Array, log: Array, action: int, block: int, size: int, tensor: int) -> None:
    """Writes an entry as the allocator would have traced it."""
    if r[IS_LOGGED]:
        at = r[NUM_LOGGED]
        r[NUM_LOGGED] = at + 1
        lane = m[block + LANE]
        log[LOG_ACTION, at], log[LOG_CALL, at] = action, r[CALL]
        log[LOG_SEG, at], log[LOG_OFF, at], log[LOG_SIZE, at] = m[m[block + RANGE] + NUMBER], m[block + OFF], size
        log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = m[lane + STREAM], m[m[lane + POOL] + INDEX], tensor


@njit_part
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


@njit_part
def cut(r: Array, m: Array, block: int, size: int) -> int:
    """Shortens ``block`` to its first ``size`` bytes; returns the rest as a block of its own, in no set."""
    rest = new_block(r, m, m[block + RANGE], m[block + OFF] + size, m[block + SIZE] - size, m[block + STATE])
    following = m[block + NEXT]
    m[rest + PREV], m[rest + NEXT] = block, following
    m[following + PREV] = rest
    m[block + NEXT] = rest
    m[block + SIZE] = size
    return rest


@njit_part
def put(r: Array, m: Array, block: int) -> None:
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


@njit_part
def merge(r: Array, m: Array, block: int) -> None:
    """Joins ``block``, which is idle and in no set, with its neighbours of the same state, and puts it into its set."""
    state = m[block + STATE]
    other = m[block + PREV]
    if m[other + STATE] == state:
        remove(m, other)
        m[block + OFF] = m[other + OFF]
        m[block + SIZE] += m[other + SIZE]
        beyond = m[other + PREV]
        m[block + PREV] = beyond
        if beyond != NONE:
            m[beyond + NEXT] = block
        drop_row(r, m, other)
    other = m[block + NEXT]
    if m[other + STATE] == state:
        remove(m, other)
        m[block + SIZE] += m[other + SIZE]
        beyond = m[other + NEXT]
        m[block + NEXT] = beyond
        if beyond != NONE:
            m[beyond + PREV] = block
        drop_row(r, m, other)
    put(r, m, block)
