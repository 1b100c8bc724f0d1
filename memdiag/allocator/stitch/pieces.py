"""Blocks, compiled: primitive ones, which lie in memory, and stitched ones, which are lists of places where primitive ones lay.

A large tensor takes whole chunks of 2 MiB. Free chunks that touch are one free block, as in the caching allocator, whose rows and ordered
sets are used here (``allocator.engine``). A tensor in a stitched block has several of them, its *pieces*, linked by BORN; a stitched block
outlives its tensor, and can serve again when all its chunks are free. Which ones are is kept chunk by chunk (``used``).
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, split_tail, try_merge_blocks

from memdiag.allocator.engine.memory import (  # isort: skip
    BORN, FREE, KEY, LANE, LIVE, NEXT, NONE, OFF, PRED, PREV, RANGE, ROW, SIZE, STATE, SUCC, TIE, drop_row, new_row,
)  # fmt: skip
from memdiag.allocator.engine.ordered import insert, lower_bound, remove
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

CHUNK = 2 << 20
# Of a range from the driver, beside what the machine keeps there: its first chunk in ``used``, its first block, whether it was given back.
FIRST_CHUNK, FIRST_BLOCK, IS_GONE = 6, 7, 8
# Of a stitched block: its places, in order, and whether a tensor has it; DOOMED: one has it, and a part of it has been given back since.
# All of them are linked by OLDER and NEWER. A place has RANGE, OFF, SIZE, NEXT.
PLACES, USE, OLDER, NEWER = PREV, OFF, RANGE, LANE
IDLE, IN_USE, DOOMED = range(3)
A_STITCHED, A_PLACE = 8, 9  # states of rows; those of the machine end before
NEXT_PIECE = BORN
# What is kept besides: settings, and counts over the whole run. HEADS: the sets of idle stitched blocks, one a stream. NEWEST: of all.
(
    FRAG_LIMIT, LEVEL, COLLECT_ABOVE, ADDS_MISSING, CAPACITY, HEADS, NEWEST, NEXT_CHUNK, LAST_WAITING, FIRST_WAITING, STITCHED_BYTES,
    NUM_STITCHED, NUM_REUSED, NUM_CREATED, NUM_MAPPED, NUM_UNMAPPED, NUM_TAKEN_APART, PEAK_STITCHED, NUM_KEPT,
) = range(19)  # fmt: skip


@lean_part
def set_used(m: Array, used: Array, block: int, value: int) -> None:
    """Marks the chunks of a large block."""
    first = m[m[block + RANGE] + FIRST_CHUNK] + m[block + OFF] // CHUNK
    for chunk in range(first, first + m[block + SIZE] // CHUNK):
        used[chunk] = value


@lean_part
def settle(r: Array, m: Array, block: int) -> None:
    """Makes a block free and joins it with its neighbours."""
    segment = m[block + RANGE]
    m[block + STATE] = FREE
    row = try_merge_blocks(r, m, block)
    if m[row + PREV] == NONE:
        m[segment + FIRST_BLOCK] = row


@lean_part
def take(r: Array, m: Array, segment: int, off: int, size: int) -> int:
    """Takes ``size`` bytes out of the free block that they lie in; returns them as a block in no set."""
    block = m[segment + FIRST_BLOCK]
    while m[block + OFF] + m[block + SIZE] <= off:
        block = m[block + NEXT]
    remove(m, block)
    if m[block + OFF] < off:
        head = block
        block = split_tail(r, m, head, off - m[head + OFF])
        insert_into_blocks(r, m, head)
    if m[block + SIZE] > size:
        insert_into_blocks(r, m, split_tail(r, m, block, size))
    return block


@lean_part
def _is_idle(m: Array, used: Array, stitched: int) -> bool:
    """Whether all chunks of a stitched block are free."""
    place = m[stitched + PLACES]
    while place != NONE:
        first = m[m[place + RANGE] + FIRST_CHUNK] + m[place + OFF] // CHUNK
        for chunk in range(first, first + m[place + SIZE] // CHUNK):
            if used[chunk]:
                return False
        place = m[place + NEXT]
    return True


@lean_part
def reuse(r: Array, m: Array, k: Array, used: Array, stream: int, size: int, most: int) -> tuple[int, int]:
    """Returns the smallest stitched block of ``size`` to ``most`` bytes of which nothing is in use; NONE: there is none.

    With it comes the first of the pieces that the request gets.
    """
    head = k[HEADS] + stream * ROW
    stitched = lower_bound(m, head, size)
    while stitched != head and m[stitched + SIZE] <= most:
        if _is_idle(m, used, stitched):
            break
        stitched = m[stitched + SUCC]
    if stitched == head or m[stitched + SIZE] > most:
        return NONE, NONE
    remove(m, stitched)
    m[stitched + USE] = IN_USE
    first, last, left = NONE, NONE, size
    place = m[stitched + PLACES]
    while left > 0:
        piece = take(r, m, m[place + RANGE], m[place + OFF], min(left, m[place + SIZE]))
        left -= m[piece + SIZE]
        m[piece + NEXT_PIECE] = NONE
        m[piece + STATE] = LIVE
        if first == NONE:
            first = piece
        else:
            m[last + NEXT_PIECE] = piece
        last = piece
        place = m[place + NEXT]
    k[NUM_REUSED] += 1
    return stitched, first


@lean_part
def stitch(r: Array, m: Array, k: Array, lane: int, size: int) -> tuple[int, int]:
    """Maps free blocks, the largest first, into one new range of addresses; returns that stitched block and its first piece.

    NONE: they are too few, or too small together.
    """
    if m[lane + SUCC] == m[lane + PRED]:
        return NONE, NONE
    total, block = 0, m[lane + PRED]
    while block != lane and total < size:
        total += m[block + SIZE]
        block = m[block + PRED]
    if total < size:
        return NONE, NONE
    k[NUM_STITCHED] += 1
    stitched = new_row(r, m)
    m[stitched + STATE], m[stitched + USE], m[stitched + SIZE] = A_STITCHED, IN_USE, size
    m[stitched + KEY], m[stitched + TIE] = size, k[NUM_STITCHED]
    m[stitched + OLDER], m[stitched + NEWER] = k[NEWEST], NONE
    if k[NEWEST] != NONE:
        m[k[NEWEST] + NEWER] = stitched
    k[NEWEST] = stitched
    first, last, last_place, left = NONE, NONE, NONE, size
    block = m[lane + PRED]
    while left > 0:
        following = m[block + PRED]
        remove(m, block)
        if m[block + SIZE] > left:
            insert_into_blocks(r, m, split_tail(r, m, block, left))
        left -= m[block + SIZE]
        place = new_row(r, m)
        m[place + STATE], m[place + NEXT] = A_PLACE, NONE
        m[place + RANGE], m[place + OFF], m[place + SIZE] = m[block + RANGE], m[block + OFF], m[block + SIZE]
        m[block + NEXT_PIECE], m[block + STATE] = NONE, LIVE
        if first == NONE:
            first, m[stitched + PLACES] = block, place
        else:
            m[last + NEXT_PIECE], m[last_place + NEXT] = block, place
        last, last_place, block = block, place, following
    k[NUM_MAPPED] += size // CHUNK
    k[STITCHED_BYTES] += size
    k[PEAK_STITCHED] = max(k[PEAK_STITCHED], k[STITCHED_BYTES])
    return stitched, first


@lean_part
def lay_down(r: Array, m: Array, k: Array, stitched: int, stream: int) -> None:
    """Takes a stitched block back from its tensor."""
    if m[stitched + USE] == DOOMED:
        take_apart(r, m, k, stitched)
        return
    m[stitched + USE] = IDLE
    insert(m, k[HEADS] + stream * ROW, stitched)


@lean_part
def take_apart(r: Array, m: Array, k: Array, stitched: int) -> None:
    """Unmaps a stitched block that is in no set."""
    place = m[stitched + PLACES]
    while place != NONE:
        following = m[place + NEXT]
        drop_row(r, m, place)
        place = following
    older, newer = m[stitched + OLDER], m[stitched + NEWER]
    if newer == NONE:
        k[NEWEST] = older
    else:
        m[newer + OLDER] = older
    if older != NONE:
        m[older + NEWER] = newer
    k[STITCHED_BYTES] -= m[stitched + SIZE]
    k[NUM_UNMAPPED] += m[stitched + SIZE] // CHUNK
    k[NUM_TAKEN_APART] += 1
    drop_row(r, m, stitched)


@lean_part
def take_apart_idle(r: Array, m: Array, k: Array, only_gone: bool) -> None:
    """Unmaps all stitched blocks that no tensor has; ``only_gone``: those of which a part was given back to the driver."""
    stitched = k[NEWEST]
    while stitched != NONE:
        older = m[stitched + OLDER]
        is_hit = not only_gone
        place = m[stitched + PLACES]
        while place != NONE and not is_hit:
            is_hit = m[m[place + RANGE] + IS_GONE] != 0
            place = m[place + NEXT]
        if is_hit and m[stitched + USE] == IDLE:
            remove(m, stitched)
            take_apart(r, m, k, stitched)
        elif is_hit and only_gone:
            m[stitched + USE] = DOOMED
        stitched = older


@lean_part
def share(left: int, size: int, spare: int) -> int:
    """Returns how much of what a tensor did not ask for is told of a piece of ``size`` bytes: less than makes it a small or shorter one."""
    most = size - CHUNK if size >= 2 * CHUNK else CHUNK // 2 - 1
    return spare if left == 0 else min(spare, most, CHUNK - 1)
