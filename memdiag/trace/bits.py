"""An ordered set of small integers, compiled.

Insert, remove, successor and predecessor take four steps for up to 16 million numbers. Each bit of a word says whether
the 64 numbers below it contain any member. The levels follow each other in one array.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def new_set(capacity: int) -> tuple[Array, Array]:
    """Returns an empty set for the numbers 0 to ``capacity`` - 1: the words, and the offset of each level."""
    starts = [0]
    words = max(capacity, 1)
    while True:
        words = (words + 63) // 64
        starts.append(starts[-1] + words)
        if words == 1:
            break
    return np.zeros(starts[-1], np.uint64), np.array(starts, np.int64)


@lean_part
def _lowest(word: int) -> int:
    """Position of the lowest bit set."""
    at = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((_ONE << np.uint64(width)) - _ONE) == 0:
            word >>= np.uint64(width)
            at += width
    return at


@lean_part
def _highest(word: int) -> int:
    """Position of the highest bit set."""
    at = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(width) != 0:
            word >>= np.uint64(width)
            at += width
    return at


@lean_part
def insert(words: Array, starts: Array, member: int) -> None:
    """Adds a member."""
    for level in range(len(starts) - 1):
        words[starts[level] + (member >> 6)] |= _ONE << np.uint64(member & 63)
        member >>= 6


@lean_part
def remove(words: Array, starts: Array, member: int) -> None:
    """Removes a member."""
    for level in range(len(starts) - 1):
        at = starts[level] + (member >> 6)
        words[at] &= ~(_ONE << np.uint64(member & 63))
        if words[at] != 0:
            return
        member >>= 6


@lean_part
def successor(words: Array, starts: Array, bound: int) -> int:
    """Returns the smallest member of at least ``bound``, or -1 if there is none."""
    levels = len(starts) - 1
    for level in range(levels):
        at = bound >> 6
        if at >= starts[level + 1] - starts[level]:
            return -1
        word = words[starts[level] + at] & (_ALL << np.uint64(bound & 63))
        if word != 0:
            found = at << 6 | _lowest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | _lowest(words[starts[below] + found])
            return found
        bound = at + 1
    return -1


@lean_part
def predecessor(words: Array, starts: Array, bound: int) -> int:
    """Returns the largest member of at most ``bound``, or -1 if there is none."""
    levels = len(starts) - 1
    for level in range(levels):
        if bound < 0:
            return -1
        at = bound >> 6
        word = words[starts[level] + at] & (_ALL >> np.uint64(63 - (bound & 63)))
        if word != 0:
            found = at << 6 | _highest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | _highest(words[starts[below] + found])
            return found
        bound = at - 1
    return -1
