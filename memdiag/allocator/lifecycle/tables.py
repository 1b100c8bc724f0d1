"""What the predictor knows, compiled: which sizes lived beyond their window, by the place in the window at which they were asked for.

A look-up finds the nearest entry of just this size at this place or before it: in the last window first, then in the windows that met
something new, the oldest first. The original walks its sets; here a window's entries are sorted once, when it ends. Of the remembered
windows, for each size only those are kept that begin earlier with it than every older one: an older one answers for all others.

Sizes are numbers of distinct sizes here, so that size and place fit one integer: ``size << 32 | start``. A table is a tuple of arrays;
functions that may have to grow one return the tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.allocator.lifecycle.pools import LONG, segment_size
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array

NEVER = 1 << 62  # the end of an entry that was not freed within its window
MISSING, FOUND, NOTHING_YET = range(3)  # what a look-up comes to
# Places in ``state``: the place that the next allocation has, windows ended, look-ups in this window, whether one met something new,
# entries recorded in this window, rows in ``old``, rows in ``known``.
TIK, WINDOW, LOOK_UPS, MET_NEW, NUM_ENTRIES, NUM_OLD, NUM_KNOWN, NUM_STATE = range(8)
# Columns of ``entries``, what this window has recorded: size, start, end, the latest thing that happened to it (number of the call).
E_SIZE, E_START, E_END, E_LATEST, NUM_ENTRY_FIELDS = range(5)
# Columns of ``last`` and ``old``, windows that have ended, each in order of size and start: the two as one key, and the end.
KEY, END, NUM_COLUMNS = range(3)
# Columns of ``known``, the stretches of ``old`` that can answer for a size: its rows [FIRST, LAST), and the next stretch for that size.
K_FIRST, K_LAST, K_NEXT, NUM_KNOWN_FIELDS = range(4)
_START = (1 << 32) - 1


@njit_part
def roomier(table: Array, rows: int) -> Array:
    """Returns a copy of a table with at least so many rows, and twice as many as it had."""
    copy = np.zeros((max(rows, 2 * len(table)), table.shape[1]), np.int64)
    copy[: len(table)] = table
    return copy


@njit_part
def fresh(num_sizes: int) -> Any:
    """Returns tables that know nothing: state, entries, last, old, known, and the first and last stretch for each size."""
    state = np.zeros(NUM_STATE, np.int64)
    state[TIK] = 1
    return (
        state, np.zeros((64, NUM_ENTRY_FIELDS), np.int64), np.zeros((0, NUM_COLUMNS), np.int64), np.zeros((64, NUM_COLUMNS), np.int64),
        np.zeros((64, NUM_KNOWN_FIELDS), np.int64), np.full(num_sizes, -1, np.int64), np.full(num_sizes, -1, np.int64),
    )  # fmt: skip


@njit_part
def begin(table: Any) -> None:
    """A window begins. What an outer window has recorded stays."""
    table[0][TIK] = 1


@njit_part
def tick(table: Any) -> None:
    """An allocation was made, wherever."""
    table[0][TIK] += 1


@njit_part
def record(table: Any, size: int, call: int) -> tuple[Any, int, int]:
    """Records an allocation in this window; returns the tables, the number of the entry, and the window's."""
    state, entries, last, old, known, head, tail = table
    at = state[NUM_ENTRIES]
    if at == len(entries):
        entries = roomier(entries, 64)
    entries[at, E_SIZE], entries[at, E_START], entries[at, E_END], entries[at, E_LATEST] = size, state[TIK], NEVER, call
    state[NUM_ENTRIES] += 1
    return (state, entries, last, old, known, head, tail), at, state[WINDOW]


@njit_part
def freed(table: Any, entry: int, window: int, call: int) -> None:
    """Records that what an entry stands for was freed, if its window is still the same."""
    state, entries = table[0], table[1]
    if window == state[WINDOW]:
        entries[entry, E_END], entries[entry, E_LATEST] = state[TIK], call


@njit_part
def look_up(table: Any, size: int, needs_last: bool) -> tuple[int, int, int]:
    """Returns FOUND with start and end of the entry that predicts an allocation of a size here, or MISSING.

    With ``needs_last``, NOTHING_YET where the last window recorded nothing; that does not count as a look-up.
    """
    state, _, last, old, known, head, _ = table
    if needs_last and len(last) == 0:
        return NOTHING_YET, 0, 0
    number, tik = state[LOOK_UPS], state[TIK]
    state[LOOK_UPS] += 1
    row = nearest(last, 0, len(last), size, tik)
    if row >= 0:
        return FOUND, last[row, KEY] & _START, last[row, END]
    stretch = head[size]
    while stretch >= 0:
        first = known[stretch, K_FIRST]
        if old[first, KEY] & _START <= tik:
            row = nearest(old, first, known[stretch, K_LAST], size, tik)
            return FOUND, old[row, KEY] & _START, old[row, END]
        stretch = known[stretch, K_NEXT]
    if len(last) >= number:
        state[MET_NEW] = 1
    return MISSING, 0, 0


@njit_part
def nearest(rows: Array, first: int, end: int, size: int, tik: int) -> int:
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
def expects(table: Any, segment: int, start: int, until: int, size_of: Array) -> bool:
    """Whether an entry that begins between two places would have a segment of just these bytes for itself."""
    state, _, last, old, _, _, _ = table
    for row in range(len(last) + state[NUM_OLD]):
        key = last[row, KEY] if row < len(last) else old[row - len(last), KEY]
        size = size_of[key >> 32]
        if start < key & _START < until and segment_size(size, LONG) == segment:
            return True
    return False


@njit_part
def end(table: Any) -> Any:
    """A window ends: it is what the next one is predicted from, and is remembered if it met something new; returns the tables."""
    state, entries, _, old, known, head, tail = table
    last = in_order(entries, state[NUM_ENTRIES])
    state[NUM_ENTRIES], state[LOOK_UPS], state[TIK] = 0, 0, 1
    state[WINDOW] += 1
    if state[MET_NEW]:
        state[MET_NEW] = 0
        at, num = state[NUM_OLD], len(last)
        if at + num > len(old):
            old = roomier(old, at + num)
        if state[NUM_KNOWN] + num > len(known):
            known = roomier(known, state[NUM_KNOWN] + num)
        old[at : at + num] = last
        state[NUM_OLD] += num
        remember(at, state, old, known, head, tail)
    return state, entries, last, old, known, head, tail


@njit_part
def in_order(entries: Array, count: int) -> Array:
    """Returns what a window has recorded in order of size, start and end (columns KEY and END), each entry once.

    Windows within windows can record one size at one start twice. As in a set, they are one entry then while they have the same end:
    the first free takes the end away from both, and a later allocation puts the entry without an end back.
    """
    raw = np.empty(count, np.int64)
    for i in range(count):
        raw[i] = entries[i, E_SIZE] << 32 | entries[i, E_START]
    order = np.argsort(raw, kind="mergesort")
    rows = np.empty((count, NUM_COLUMNS), np.int64)
    num, first = 0, 0
    while first < count:
        key, stop = raw[order[first]], first + 1
        while stop < count and raw[order[stop]] == key:
            stop += 1
        ends = np.sort(entries[order[first:stop], E_END]) if stop > first + 1 else entries[order[first:stop], E_END]
        latest = order[first]
        for i in order[first:stop]:
            if entries[i, E_LATEST] > entries[latest, E_LATEST]:
                latest = i
        for i in range(len(ends)):
            is_again = i > 0 and ends[i] == ends[i - 1]
            if not is_again and (ends[i] != NEVER or entries[latest, E_END] == NEVER):
                rows[num, KEY], rows[num, END] = key, ends[i]
                num += 1
        first = stop
    return rows[:num].copy()


@njit_part
def remember(at: int, state: Array, old: Array, known: Array, head: Array, tail: Array) -> None:
    """Makes the rows of ``old`` from ``at`` on answer for their sizes, where no older ones do."""
    row, stop = at, state[NUM_OLD]
    while row < stop:
        size, following = old[row, KEY] >> 32, row + 1
        while following < stop and old[following, KEY] >> 32 == size:
            following += 1
        before = tail[size]
        if before < 0 or old[row, KEY] < old[known[before, K_FIRST], KEY]:
            stretch = state[NUM_KNOWN]
            state[NUM_KNOWN] += 1
            known[stretch, K_FIRST], known[stretch, K_LAST], known[stretch, K_NEXT] = row, following, -1
            if before < 0:
                head[size] = stretch
            else:
                known[before, K_NEXT] = stretch
            tail[size] = stretch
        row = following
