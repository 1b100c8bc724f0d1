"""What the predictor knows, compiled: which sizes lived beyond their window, by the place in the window at which they were asked for.

A look-up finds the nearest entry of just this size at this place or before it: in the last window first, then in the windows that met
something new, the oldest first. The original walks its sets; here a window's entries are sorted once, when it ends. Of the remembered
windows, for each size only those are kept that begin earlier with it than every older one: an older one answers for all others.

Sizes are numbers of distinct sizes here, so that size and place fit one integer: ``size << 32 | start``. All of it lies in one array ``k``,
as the machine's memory does, so that compiled functions pass little: what the pools keep first, then the table of forward windows and
that of steps. A table is known by the position of its first number, and ``k[t + TIK]`` is one of them; others say where its parts begin.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.lifecycle.pools import LONG, NUM_KEPT, get_allocation_size
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array

NEVER = 1 << 62  # the end of an entry that was not freed within its window
MISSING, FOUND, NOTHING_YET = range(3)  # what a look-up comes to
# Of a table: the place that the next allocation has, windows ended, look-ups in this window, whether one met something new, entries
# recorded in this window, rows in LAST, OLD and KNOWN, start and end of what the latest look-up found, and where the parts begin.
(
    TIK, WINDOW, LOOK_UPS, MET_NEW, NUM_ENTRIES, NUM_LAST, NUM_OLD, NUM_KNOWN, START, UNTIL, ENTRIES, LAST, OLD, KNOWN, HEAD, TAIL, SIZES,
    SCRATCH, ROOM, NUM_STATE,
) = range(20)  # fmt: skip
FORWARD, STEP = NUM_KEPT, NUM_KEPT + NUM_STATE  # the two tables
# ENTRIES, what this window has recorded: size, start, end, the latest thing that happened to it (number of the call).
E_SIZE, E_START, E_END, E_LATEST, ENTRY = range(5)
# LAST and OLD, windows that have ended, each in order of size, start and end: the first two as one key, and the end.
KEY, END, ROW = range(3)
# KNOWN, the stretches of OLD that can answer for a size: its rows [FIRST, LAST), and the next stretch for that size.
K_FIRST, K_LAST, K_NEXT, STRETCH = range(4)
# HEAD and TAIL: the first and the last stretch for each size. SIZES: the bytes of each. SCRATCH: keys and entries being sorted, twice
# ROOM of each.
_START = (1 << 32) - 1


def fresh(kept: Array, sizes: tuple[Array, Array], most: tuple[int, int], total: int) -> Array:
    """Returns ``k`` with tables that know nothing.

    Args:
        kept: What the pools keep (``pools.empty``).
        sizes: Distinct sizes of each table.
        most: Allocations in one window of each at most.
        total: Allocations in all windows at most.
    """
    states, position = [], NUM_KEPT + 2 * NUM_STATE
    for number, room in zip((len(sizes[0]), len(sizes[1])), most, strict=True):
        state = np.zeros(NUM_STATE, np.int64)
        state[[TIK, ROOM]] = 1, room
        parts = ((HEAD, number), (TAIL, number), (SIZES, number), (ENTRIES, ENTRY * room), (LAST, ROW * room), (SCRATCH, 4 * room),
                 (OLD, ROW * total), (KNOWN, STRETCH * total))  # fmt: skip
        for part, length in parts:
            state[part] = position
            position += length
        states.append(state)
    k = np.empty(position, np.int64)  # most of it is never touched
    k[:NUM_KEPT] = kept
    for table, state, of in zip((FORWARD, STEP), states, sizes, strict=True):
        k[table : table + NUM_STATE] = state
        k[state[HEAD] : state[SIZES]] = -1
        k[state[SIZES] : state[ENTRIES]] = of
    return k


@njit_part
def record(k: Array, t: int, size: int, call: int) -> int:
    """Records an allocation in this window; returns the number of the entry."""
    number = k[t + NUM_ENTRIES]
    k[t + NUM_ENTRIES] = number + 1
    at = k[t + ENTRIES] + ENTRY * number
    k[at + E_SIZE], k[at + E_START], k[at + E_END], k[at + E_LATEST] = size, k[t + TIK], NEVER, call
    return number


@njit_part
def freed(k: Array, t: int, entry: int, window: int, call: int) -> None:
    """Records that what an entry stands for was freed, if its window is still the same."""
    if window == k[t + WINDOW]:
        at = k[t + ENTRIES] + ENTRY * entry
        k[at + E_END], k[at + E_LATEST] = k[t + TIK], call


@njit_part
def look_up(k: Array, t: int, size: int, needs_last: bool) -> int:
    """Looks for the entry that predicts an allocation of a size here; its start and end are START and UNTIL then.

    Returns:
        FOUND or MISSING; with ``needs_last`` NOTHING_YET where the last window recorded nothing, which does not count as a look-up.
    """
    k[t + START], k[t + UNTIL] = 0, 0
    num_last = k[t + NUM_LAST]
    if needs_last and num_last == 0:
        return NOTHING_YET
    number, tik = k[t + LOOK_UPS], k[t + TIK]
    k[t + LOOK_UPS] = number + 1
    row = _nearest(k, k[t + LAST], 0, num_last, size, tik)
    stretch = k[k[t + HEAD] + size]
    while row < 0 and stretch >= 0:
        at = k[t + KNOWN] + STRETCH * stretch
        if k[k[t + OLD] + ROW * k[at + K_FIRST] + KEY] & _START <= tik:
            row = _nearest(k, k[t + OLD], k[at + K_FIRST], k[at + K_LAST], size, tik)
        stretch = k[at + K_NEXT]
    if row >= 0:
        k[t + START], k[t + UNTIL] = k[row + KEY] & _START, k[row + END]
        return FOUND
    if num_last >= number:
        k[t + MET_NEW] = 1
    return MISSING


@njit_part
def _nearest(k: Array, rows: int, first: int, end: int, size: int, tik: int) -> int:
    """Returns the position of the latest entry of a size with a start of at most ``tik`` among rows ``[first, end)``; -1: none."""
    wanted = size << 32 | tik
    a, b = first, end
    while a < b:
        middle = (a + b) >> 1
        if k[rows + ROW * middle + KEY] <= wanted:
            a = middle + 1
        else:
            b = middle
    found = rows + ROW * (a - 1)
    if a > first and k[found + KEY] >> 32 == size:
        return found
    return -1


@njit_part
def expects(k: Array, t: int, segment: int) -> bool:
    """Whether, between start and end of what the latest look-up found, an entry begins that would have such a segment for itself."""
    for rows, num in ((k[t + LAST], k[t + NUM_LAST]), (k[t + OLD], k[t + NUM_OLD])):
        for at in range(rows, rows + ROW * num, ROW):
            key = k[at + KEY]
            if k[t + START] < key & _START < k[t + UNTIL] and get_allocation_size(k[k[t + SIZES] + (key >> 32)], LONG) == segment:
                return True
    return False


@njit_part
def end(k: Array, t: int) -> None:
    """A window ends: it is what the next one is predicted from, and is remembered if it met something new."""
    _sort(k, t)
    _settle(k, t)
    k[t + NUM_ENTRIES], k[t + LOOK_UPS], k[t + TIK] = 0, 0, 1
    k[t + WINDOW] += 1
    if k[t + MET_NEW]:
        k[t + MET_NEW] = 0
        at, last = k[t + OLD] + ROW * k[t + NUM_OLD], k[t + LAST]
        for i in range(ROW * k[t + NUM_LAST]):
            k[at + i] = k[last + i]
        _remember(k, t)


@njit_part
def _sort(k: Array, t: int) -> None:
    """Sorts the entries of a window by size and start: runs are merged, pair by pair. Keys, then entries begin SCRATCH then."""
    count, room, entries = k[t + NUM_ENTRIES], k[t + ROOM], k[t + ENTRIES]
    source, target, width = k[t + SCRATCH], k[t + SCRATCH] + 2 * room, 1
    for i in range(count):
        at = entries + ENTRY * i
        k[source + i], k[source + room + i] = k[at + E_SIZE] << 32 | k[at + E_START], i
    while width < count:
        for begin in range(0, count, 2 * width):
            a, middle, stop = begin, min(begin + width, count), min(begin + 2 * width, count)
            b = middle
            for at in range(begin, stop):
                if a < middle and (b >= stop or k[source + a] <= k[source + b]):
                    k[target + at], k[target + room + at] = k[source + a], k[source + room + a]
                    a += 1
                else:
                    k[target + at], k[target + room + at] = k[source + b], k[source + room + b]
                    b += 1
        source, target, width = target, source, 2 * width
    if source != k[t + SCRATCH]:
        for i in range(count):
            k[target + i], k[target + room + i] = k[source + i], k[source + room + i]


@njit_part
def _settle(k: Array, t: int) -> None:
    """Writes sorted entries as the last window, each once, those of one size and start in order of their ends.

    Windows within windows can record one size at one start twice. As in a set, they are one entry then while they have the same end:
    the first free takes the end away from both, and a later allocation puts the entry without an end back.
    """
    count, keys, entries, rows = k[t + NUM_ENTRIES], k[t + SCRATCH], k[t + ENTRIES], k[t + LAST]
    numbers = keys + k[t + ROOM]
    num, first = 0, 0
    while first < count:
        key, stop, latest, begin = k[keys + first], first, entries + ENTRY * k[numbers + first], num
        while stop < count and k[keys + stop] == key:
            entry = entries + ENTRY * k[numbers + stop]
            if k[entry + E_LATEST] > k[latest + E_LATEST]:
                latest = entry
            until, place = k[entry + E_END], num
            while place > begin and k[rows + ROW * (place - 1) + END] > until:
                place -= 1
            if until != NEVER and not (place > begin and k[rows + ROW * (place - 1) + END] == until):
                for i in range(ROW * num - 1, ROW * place - 1, -1):
                    k[rows + ROW + i] = k[rows + i]
                k[rows + ROW * place + KEY], k[rows + ROW * place + END] = key, until
                num += 1
            stop += 1
        if k[latest + E_END] == NEVER:
            k[rows + ROW * num + KEY], k[rows + ROW * num + END] = key, NEVER
            num += 1
        first = stop
    k[t + NUM_LAST] = num


@njit_part
def _remember(k: Array, t: int) -> None:
    """Makes the last window, which stands at the end of OLD, answer for its sizes, where no older ones do."""
    old, known = k[t + OLD], k[t + KNOWN]
    row = k[t + NUM_OLD]
    stop = row + k[t + NUM_LAST]
    k[t + NUM_OLD] = stop
    while row < stop:
        key, following = k[old + ROW * row + KEY], row + 1
        size = key >> 32
        while following < stop and k[old + ROW * following + KEY] >> 32 == size:
            following += 1
        before = k[k[t + TAIL] + size]
        if before < 0 or key < k[old + ROW * k[known + STRETCH * before + K_FIRST] + KEY]:
            stretch = k[t + NUM_KNOWN]
            k[t + NUM_KNOWN] = stretch + 1
            at = known + STRETCH * stretch
            k[at + K_FIRST], k[at + K_LAST], k[at + K_NEXT] = row, following, -1
            if before < 0:
                k[k[t + HEAD] + size] = stretch
            else:
                k[known + STRETCH * before + K_NEXT] = stretch
            k[k[t + TAIL] + size] = stretch
        row = following
