"""What the predictor knows, compiled: which sizes lived beyond their window, by the place in the window at which they were asked for.

A look-up finds the nearest entry of just this size at this place or before it: in the last window first, then in the windows that met
something new, the oldest first. The original walks its sets; here a window's entries are sorted once, when it ends. Of the remembered
windows, for each size only those are kept that begin earlier with it than every older one: an older one answers for all others.

Sizes are numbers of distinct sizes here, so that size and place fit one integer: ``size << 32 | start``. A table is a tuple of arrays made
before the first call, large enough for all that can come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.allocator.lifecycle.pools import LONG, segment_size
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array

Table = tuple[Array, Array, Array, Array, Array, Array, Array, Array]

NEVER = 1 << 62  # the end of an entry that was not freed within its window
MISSING, FOUND, NOTHING_YET = range(3)  # what a look-up comes to
# Places in ``state``: the place that the next allocation has, windows ended, look-ups in this window, whether one met something new,
# entries recorded in this window, rows in ``last``, in ``old``, in ``known``, and what the latest look-up found: start and end.
TIK, WINDOW, LOOK_UPS, MET_NEW, NUM_ENTRIES, NUM_LAST, NUM_OLD, NUM_KNOWN, START, UNTIL, NUM_STATE = range(11)
# Columns of ``entries``, what this window has recorded: size, start, end, the latest thing that happened to it (number of the call).
E_SIZE, E_START, E_END, E_LATEST, NUM_ENTRY_FIELDS = range(5)
# Columns of ``last`` and ``old``, windows that have ended, each in order of size, start and end: the first two as one key, and the end.
KEY, END, NUM_COLUMNS = range(3)
# Columns of ``known``, the stretches of ``old`` that can answer for a size: its rows [FIRST, LAST), and the next stretch for that size.
K_FIRST, K_LAST, K_NEXT, NUM_KNOWN_FIELDS = range(4)
_START = (1 << 32) - 1
_NUM_SCRATCH = 4  # rows of ``scratch``: keys and entries that are being sorted, twice


def fresh(num_sizes: int, most: int, total: int) -> Table:
    """Returns a table that knows nothing.

    Args:
        num_sizes: Distinct sizes.
        most: Allocations in one window at most.
        total: Allocations in all windows at most.

    Returns:
        state, entries, last, old, known, the first and the last stretch for each size, scratch.
    """
    state = np.zeros(NUM_STATE, np.int64)
    state[TIK] = 1
    return (
        state, np.empty((most, NUM_ENTRY_FIELDS), np.int64), np.empty((most, NUM_COLUMNS), np.int64),
        np.empty((total, NUM_COLUMNS), np.int64), np.empty((total, NUM_KNOWN_FIELDS), np.int64), np.full(num_sizes, -1, np.int64),
        np.full(num_sizes, -1, np.int64), np.empty((_NUM_SCRATCH, most), np.int64),
    )  # fmt: skip


@njit_part
def record(table: Any, size: int, call: int) -> int:
    """Records an allocation in this window; returns the number of the entry."""
    state, entries = table[0], table[1]
    at = state[NUM_ENTRIES]
    entries[at, E_SIZE], entries[at, E_START], entries[at, E_END], entries[at, E_LATEST] = size, state[TIK], NEVER, call
    state[NUM_ENTRIES] = at + 1
    return at


@njit_part
def freed(table: Any, entry: int, window: int, call: int) -> None:
    """Records that what an entry stands for was freed, if its window is still the same."""
    state, entries = table[0], table[1]
    if window == state[WINDOW]:
        entries[entry, E_END], entries[entry, E_LATEST] = state[TIK], call


@njit_part
def look_up(table: Any, size: int, needs_last: bool) -> int:
    """Looks for the entry that predicts an allocation of a size here; its start and end stand in ``state`` then.

    Returns:
        FOUND or MISSING; with ``needs_last`` NOTHING_YET where the last window recorded nothing, which does not count as a look-up.
    """
    state, _, last, old, known, head, _, _ = table
    state[START], state[UNTIL] = 0, 0
    if needs_last and state[NUM_LAST] == 0:
        return NOTHING_YET
    number, tik = state[LOOK_UPS], state[TIK]
    state[LOOK_UPS] = number + 1
    row = _nearest(last, 0, state[NUM_LAST], size, tik)
    if row >= 0:
        state[START], state[UNTIL] = last[row, KEY] & _START, last[row, END]
        return FOUND
    stretch = head[size]
    while stretch >= 0:
        first = known[stretch, K_FIRST]
        if old[first, KEY] & _START <= tik:
            row = _nearest(old, first, known[stretch, K_LAST], size, tik)
            state[START], state[UNTIL] = old[row, KEY] & _START, old[row, END]
            return FOUND
        stretch = known[stretch, K_NEXT]
    if state[NUM_LAST] >= number:
        state[MET_NEW] = 1
    return MISSING


@njit_part
def _nearest(rows: Array, first: int, end: int, size: int, tik: int) -> int:
    """Returns the row in ``[first, end)`` of the latest entry of a size with a start of at most ``tik``; -1: none."""
    wanted = size << 32 | tik
    a, b = first, end
    while a < b:
        middle = (a + b) >> 1
        if rows[middle, KEY] <= wanted:
            a = middle + 1
        else:
            b = middle
    if a > first and rows[a - 1, KEY] >> 32 == size:
        return a - 1
    return -1


@njit_part
def expects(table: Any, segment: int, size_of: Array) -> bool:
    """Whether, between start and end of what the latest look-up found, an entry begins that would have such a segment for itself."""
    state, _, last, old, _, _, _, _ = table
    start, until, num_last = state[START], state[UNTIL], state[NUM_LAST]
    for row in range(num_last + state[NUM_OLD]):
        key = last[row, KEY] if row < num_last else old[row - num_last, KEY]
        if start < key & _START < until and segment_size(size_of[key >> 32], LONG) == segment:
            return True
    return False


@njit_part
def end(table: Any) -> None:
    """A window ends: it is what the next one is predicted from, and is remembered if it met something new."""
    state, entries, last, old, known, head, tail, scratch = table
    count = _sorted(entries, state[NUM_ENTRIES], scratch)
    _settle(entries, last, scratch, count, state)
    state[NUM_ENTRIES], state[LOOK_UPS], state[TIK] = 0, 0, 1
    state[WINDOW] += 1
    if state[MET_NEW]:
        state[MET_NEW] = 0
        at = state[NUM_OLD]
        for row in range(state[NUM_LAST]):
            old[at + row, KEY], old[at + row, END] = last[row, KEY], last[row, END]
        state[NUM_OLD] = at + state[NUM_LAST]
        _remember(at, state, old, known, head, tail)


@njit_part
def _sorted(entries: Array, count: int, scratch: Array) -> int:
    """Sorts the entries of a window by size and start: runs are merged, pair by pair. Keys and entries stand in ``scratch[0:2]`` then."""
    for i in range(count):
        scratch[0, i], scratch[1, i] = entries[i, E_SIZE] << 32 | entries[i, E_START], i
    source, target, width = 0, 2, 1
    while width < count:
        for begin in range(0, count, 2 * width):
            a, middle, b = begin, min(begin + width, count), min(begin + width, count)
            stop = min(begin + 2 * width, count)
            for at in range(begin, stop):
                if a < middle and (b >= stop or scratch[source, a] <= scratch[source, b]):
                    scratch[target, at], scratch[target + 1, at] = scratch[source, a], scratch[source + 1, a]
                    a += 1
                else:
                    scratch[target, at], scratch[target + 1, at] = scratch[source, b], scratch[source + 1, b]
                    b += 1
        source, target, width = target, source, 2 * width
    if source != 0:
        for i in range(count):
            scratch[0, i], scratch[1, i] = scratch[2, i], scratch[3, i]
    return count


@njit_part
def _settle(entries: Array, last: Array, scratch: Array, count: int, state: Array) -> None:
    """Writes sorted entries as the last window, each once, those of one size and start in order of their ends.

    Windows within windows can record one size at one start twice. As in a set, they are one entry then while they have the same end:
    the first free takes the end away from both, and a later allocation puts the entry without an end back.
    """
    num, first = 0, 0
    while first < count:
        key, stop, latest = scratch[0, first], first, scratch[1, first]
        begin = num
        while stop < count and scratch[0, stop] == key:
            entry = scratch[1, stop]
            if entries[entry, E_LATEST] > entries[latest, E_LATEST]:
                latest = entry
            until, place = entries[entry, E_END], num
            while place > begin and last[place - 1, END] > until:
                place -= 1
            if until != NEVER and not (place > begin and last[place - 1, END] == until):
                for row in range(num, place, -1):
                    last[row, KEY], last[row, END] = last[row - 1, KEY], last[row - 1, END]
                last[place, KEY], last[place, END] = key, until
                num += 1
            stop += 1
        if entries[latest, E_END] == NEVER:
            last[num, KEY], last[num, END] = key, NEVER
            num += 1
        first = stop
    state[NUM_LAST] = num


@njit_part
def _remember(at: int, state: Array, old: Array, known: Array, head: Array, tail: Array) -> None:
    """Makes the rows of ``old`` from ``at`` on answer for their sizes, where no older ones do."""
    row, stop = at, state[NUM_OLD]
    while row < stop:
        size, following = old[row, KEY] >> 32, row + 1
        while following < stop and old[following, KEY] >> 32 == size:
            following += 1
        before = tail[size]
        if before < 0 or old[row, KEY] < old[known[before, K_FIRST], KEY]:
            stretch = state[NUM_KNOWN]
            state[NUM_KNOWN] = stretch + 1
            known[stretch, K_FIRST], known[stretch, K_LAST], known[stretch, K_NEXT] = row, following, -1
            if before < 0:
                head[size] = stretch
            else:
                known[before, K_NEXT] = stretch
            tail[size] = stretch
        row = following
