"""Ordered sets of rows: a tree for finding, threaded so that the next and the previous one are at hand.

The sets are treaps: search trees by (KEY, TIE), heaps by PRIORITY, a number that a row has by chance. That keeps them as shallow as trees
that are balanced on purpose, with less to do at each change, for ten free blocks and for fifty thousand. The head of a set is a row too:
LEFT is its root, SUCC its first and PRED its last member (the head itself where it is empty).
"""

from __future__ import annotations

from memdiag.allocator.engine.memory import KEY, LEFT, NONE, PARENT, PRED, PRIORITY, RIGHT, SUCC, TIE
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def insert(m: Array, head: int, row: int) -> None:
    """Adds ``row``, whose KEY and TIE are set."""
    key, tie, priority = m[row + KEY], m[row + TIE], m[row + PRIORITY]
    above, side, x = head, LEFT, m[head + LEFT]
    before, after = head, head
    # Which way to go is a matter of chance, which processors guess badly: it is worked out as a number, without a branch.
    while x != NONE and m[x + PRIORITY] > priority:
        smaller = (m[x + KEY] < key) | ((m[x + KEY] == key) & (m[x + TIE] < tie))
        before = x if smaller else before
        after = after if smaller else x
        above, side = x, LEFT + smaller
        x = m[x + side]
    m[above + side] = row
    m[row + PARENT] = above
    # What stands below is split in two by the new member: smaller ones hang on its left, larger ones on its right.
    low, low_side, high, high_side = row, LEFT, row, RIGHT
    while x != NONE:
        if (m[x + KEY] < key) | ((m[x + KEY] == key) & (m[x + TIE] < tie)):
            m[low + low_side] = x
            m[x + PARENT] = low
            before, low, low_side = x, x, RIGHT
            x = m[x + RIGHT]
        else:
            m[high + high_side] = x
            m[x + PARENT] = high
            after, high, high_side = x, x, LEFT
            x = m[x + LEFT]
    m[low + low_side] = NONE
    m[high + high_side] = NONE
    m[row + PRED], m[row + SUCC] = before, after
    m[before + SUCC] = row
    m[after + PRED] = row


@lean_part
def remove(m: Array, row: int) -> None:
    """Takes ``row`` out of the set that it is in."""
    before, after = m[row + PRED], m[row + SUCC]
    m[before + SUCC] = after
    m[after + PRED] = before
    low, high, above = m[row + LEFT], m[row + RIGHT], m[row + PARENT]
    side = LEFT if m[above + LEFT] == row else RIGHT
    while low != NONE and high != NONE:
        if m[low + PRIORITY] > m[high + PRIORITY]:
            m[above + side] = low
            m[low + PARENT] = above
            above, side = low, RIGHT
            low = m[low + RIGHT]
        else:
            m[above + side] = high
            m[high + PARENT] = above
            above, side = high, LEFT
            high = m[high + LEFT]
    rest = high if low == NONE else low
    m[above + side] = rest
    if rest != NONE:
        m[rest + PARENT] = above


@lean_part
def lower_bound(m: Array, head: int, key: int) -> int:
    """Returns the first member whose KEY is at least ``key``; the head: there is none."""
    found, x = head, m[head + LEFT]
    while x != NONE:
        smaller = m[x + KEY] < key
        found = found if smaller else x
        x = m[x + LEFT + smaller]
    return found


@lean_part
def stays(m: Array, head: int, row: int, key: int, tie: int) -> bool:
    """Whether ``row`` could have this KEY and TIE and be where it is in its set."""
    before, after = m[row + PRED], m[row + SUCC]
    return (before == head or m[before + KEY] < key or (m[before + KEY] == key and m[before + TIE] < tie)) and (
        after == head or m[after + KEY] > key or (m[after + KEY] == key and m[after + TIE] > tie)
    )
