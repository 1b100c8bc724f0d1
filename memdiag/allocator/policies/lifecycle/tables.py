"""The predictor of lifetimes: sizes that outlived their window, by the position of the request in it. Compiled.

A look-up finds the nearest entry of exactly this size at or before this position. It searches the last window first,
then the remembered windows (those that met a new entry), the oldest first. The original walks its sets; here the
entries of a window are sorted once, when it ends. A remembered window is kept for a size only if its entries begin
earlier than those of every older window, because an older window answers all other look-ups.

Sizes are replaced by numbers of distinct sizes, so that size and position fit one integer: ``size << 32 | start``.
There are two tables, one of forward windows and one of steps. Both store their parts in common arrays (``MindSpeed``);
a table has the offsets of its parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from memdiag.allocator.engine.memory import record_type
from memdiag.allocator.policies.lifecycle.pools import LONG, get_allocation_size
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

NEVER = 1 << 62  # the end of an entry that was not freed within its window
MISSING, FOUND, NOTHING_YET = range(3)  # results of a look-up
FORWARD, STEP = range(2)  # the tables
TABLE = record_type(
    "tik",  # position of the next allocation
    "window",  # number of windows that have ended
    "look_ups",  # number of look-ups in this window
    "met_new",  # whether one of them met an unknown entry
    "num_entries",  # entries of this window
    "num_last",  # rows of the last window
    "num_old",  # rows of remembered windows
    "num_known",  # stretches
    "start",  # start of the entry that the latest look-up found
    "until",  # its end
    # where the parts begin
    "entries",
    "last",
    "old",
    "known",
    "sizes",
    "scratch",
    "room",  # upper bound of the allocations in a window
)
# An allocation of this window: its size, start and end, and the latest call that changed it.
ENTRY = record_type("size", "start", "end", "latest")
# An entry of a window that has ended: size and start as one key, and the end; the rows of a window are in order of
# both.
ROW = record_type("key", "end")
# Rows of one remembered window that can answer for a size, [first, last), and the next such stretch for that size.
STRETCH = record_type("first", "last", "next")
_START = (1 << 32) - 1


class MindSpeed(NamedTuple):
    """The state of MindSpeed's allocator in addition to the nodes.

    Attributes:
        pools: Settings and counters (``pools.POOLS``).
        tables: Records of TABLE: FORWARD, STEP.
        entries, rows, stretches: Records of both tables.
        heads, tails, sizes: For each distinct size of each table, its first and last stretch, and its bytes.
        scratch: Per table, scratch memory to sort keys and entries, twice ``room`` of each.
        recorded: Per tensor, its entry in each table, and the window of the entry (``ENTRY_OF``).
        size_number, rounded_number: Per allocation, its requested and its rounded size as numbers of distinct sizes.
        lifetime: Per call, whether its tensor is long-lived (1, 0); empty: the tables predict it.
        mark_at, mark_kind: Per mark, in order, the next call and its kind.
    """

    pools: Any
    tables: Any
    entries: Any
    rows: Any
    stretches: Any
    heads: Array
    tails: Array
    sizes: Array
    scratch: Array
    recorded: Any
    size_number: Array
    rounded_number: Array
    lifetime: Array
    mark_at: Array
    mark_kind: Array


ENTRY_OF = record_type("forward", "forward_window", "step", "step_window")
NO_ENTRY = -1


def fresh(sizes: tuple[Array, Array], most: tuple[int, int], total: int) -> dict[str, Any]:
    """Returns empty tables and the arrays of their parts, as fields of ``MindSpeed``.

    Args:
        sizes: Distinct sizes of each table.
        most: Upper bound of the allocations in one window, per table.
        total: Upper bound of the allocations in all windows.
    """
    tables = np.zeros(2, TABLE)
    tables["tik"], tables["room"] = 1, most
    tables["entries"] = 0, most[0]
    tables["sizes"] = 0, len(sizes[0])
    tables["scratch"] = 0, 4 * most[0]
    tables["known"] = 0, total
    tables["last"] = 0, most[0] + total
    tables["old"] = tables["last"] + most
    # Most of these pages are never written, so they take no memory.
    return {
        "tables": tables,
        "entries": np.empty(sum(most), ENTRY),
        "rows": np.empty(sum(most) + 2 * total, ROW),
        "stretches": np.empty(2 * total, STRETCH),
        "heads": np.full(len(sizes[0]) + len(sizes[1]), -1, np.int64),
        "tails": np.full(len(sizes[0]) + len(sizes[1]), -1, np.int64),
        "sizes": np.concatenate(sizes).astype(np.int64),
        "scratch": np.empty(4 * sum(most), np.int64),
    }


@lean_part
def record(mindspeed: MindSpeed, t: int, size: int, call: int) -> int:
    """Records an allocation in this window; returns the number of the entry."""
    table = mindspeed.tables[t]
    number = table.num_entries
    table.num_entries = number + 1
    entry = mindspeed.entries[table.entries + number]
    entry.size, entry.start, entry.end, entry.latest = size, table.tik, NEVER, call
    return number


@lean_part
def freed(mindspeed: MindSpeed, t: int, number: int, window: int, call: int) -> None:
    """Records that an entry was freed, if its window is still the same."""
    table = mindspeed.tables[t]
    if window == table.window:
        entry = mindspeed.entries[table.entries + number]
        entry.end, entry.latest = table.tik, call


@lean_part
def look_up(mindspeed: MindSpeed, t: int, size: int, needs_last: bool) -> int:
    """Finds the entry that predicts an allocation of a size at this position, and sets ``start`` and ``until``.

    Without an entry, they are this position and NEVER.

    Returns:
        FOUND or MISSING; with ``needs_last``, NOTHING_YET if the last window has no entries, which does not count as a
        look-up.
    """
    table = mindspeed.tables[t]
    table.start, table.until = table.tik, NEVER
    if needs_last and table.num_last == 0:
        return NOTHING_YET
    number, tik = table.look_ups, table.tik
    table.look_ups = number + 1
    row = _nearest(mindspeed, table.last, 0, table.num_last, size, tik)
    stretch = mindspeed.heads[table.sizes + size]
    while row < 0 and stretch >= 0:
        at = table.known + stretch
        if mindspeed.rows[table.old + mindspeed.stretches[at].first].key & _START <= tik:
            row = _nearest(mindspeed, table.old, mindspeed.stretches[at].first, mindspeed.stretches[at].last, size, tik)
        stretch = mindspeed.stretches[at].next
    if row >= 0:
        table.start, table.until = mindspeed.rows[row].key & _START, mindspeed.rows[row].end
        return FOUND
    if table.num_last >= number:
        table.met_new = 1
    return MISSING


@lean_part
def _nearest(mindspeed: MindSpeed, begin: int, first: int, end: int, size: int, tik: int) -> int:
    """Returns the row in [first, end) of the latest entry of a size that starts at or before ``tik``; -1: none."""
    wanted = size << 32 | tik
    a, b = first, end
    while a < b:
        middle = (a + b) >> 1
        if mindspeed.rows[begin + middle].key <= wanted:
            a = middle + 1
        else:
            b = middle
    found = begin + a - 1
    if a > first and mindspeed.rows[found].key >> 32 == size:
        return found
    return -1


@lean_part
def expects(mindspeed: MindSpeed, t: int, segment: int) -> bool:
    """Returns whether an entry that needs such a whole segment begins between start and end of the latest look-up."""
    table = mindspeed.tables[t]
    for begin, num in ((table.last, table.num_last), (table.old, table.num_old)):
        for row in range(begin, begin + num):
            key = mindspeed.rows[row].key
            if (
                table.start < key & _START < table.until
                and get_allocation_size(mindspeed.sizes[table.sizes + (key >> 32)], LONG) == segment
            ):
                return True
    return False


@lean_part
def end(mindspeed: MindSpeed, t: int) -> None:
    """Ends a window: it predicts the next one, and it is remembered if it met a new entry."""
    table, rows = mindspeed.tables[t], mindspeed.rows
    _sort(mindspeed, t)
    _settle(mindspeed, t)
    table.num_entries, table.look_ups, table.tik = 0, 0, 1
    table.window += 1
    if table.met_new:
        table.met_new = 0
        at = table.old + table.num_old
        for i in range(table.num_last):
            rows[at + i].key, rows[at + i].end = rows[table.last + i].key, rows[table.last + i].end
        _remember(mindspeed, t)


@lean_part
def _sort(mindspeed: MindSpeed, t: int) -> None:
    """Sorts the entries of a window by size and start (merge sort).

    Afterwards ``scratch`` begins with keys, then with entries.
    """
    table, scratch = mindspeed.tables[t], mindspeed.scratch
    count, room = table.num_entries, table.room
    source, target, width = table.scratch, table.scratch + 2 * room, 1
    for i in range(count):
        entry = mindspeed.entries[table.entries + i]
        scratch[source + i], scratch[source + room + i] = entry.size << 32 | entry.start, i
    while width < count:
        for begin in range(0, count, 2 * width):
            a, middle, stop = begin, min(begin + width, count), min(begin + 2 * width, count)
            b = middle
            for at in range(begin, stop):
                if a < middle and (b >= stop or scratch[source + a] <= scratch[source + b]):
                    scratch[target + at], scratch[target + room + at] = scratch[source + a], scratch[source + room + a]
                    a += 1
                else:
                    scratch[target + at], scratch[target + room + at] = scratch[source + b], scratch[source + room + b]
                    b += 1
        source, target, width = target, source, 2 * width
    if source != table.scratch:
        for i in range(count):
            scratch[target + i], scratch[target + room + i] = scratch[source + i], scratch[source + room + i]


@lean_part
def _settle(mindspeed: MindSpeed, t: int) -> None:
    """Stores sorted entries as the last window, without duplicates; equal size and start are sorted by end.

    Nested windows can record one size at one start twice. As in a set, such entries are one while they have the same
    end. The first free replaces that entry, and a later allocation adds the entry without an end again.
    """
    table, entries, rows, scratch = mindspeed.tables[t], mindspeed.entries, mindspeed.rows, mindspeed.scratch
    count, keys, last = table.num_entries, table.scratch, table.last
    numbers = keys + table.room
    num, first = 0, 0
    while first < count:
        key, stop, latest, begin = scratch[keys + first], first, table.entries + scratch[numbers + first], num
        while stop < count and scratch[keys + stop] == key:
            entry = table.entries + scratch[numbers + stop]
            if entries[entry].latest > entries[latest].latest:
                latest = entry
            until, place = entries[entry].end, num
            while place > begin and rows[last + place - 1].end > until:
                place -= 1
            if until != NEVER and not (place > begin and rows[last + place - 1].end == until):
                for i in range(num - 1, place - 1, -1):
                    rows[last + i + 1].key, rows[last + i + 1].end = rows[last + i].key, rows[last + i].end
                rows[last + place].key, rows[last + place].end = key, until
                num += 1
            stop += 1
        if entries[latest].end == NEVER:
            rows[last + num].key, rows[last + num].end = key, NEVER
            num += 1
        first = stop
    table.num_last = num


@lean_part
def _remember(mindspeed: MindSpeed, t: int) -> None:
    """Remembers the last window: it answers look-ups for its sizes that no older window answers."""
    table, rows, stretches = mindspeed.tables[t], mindspeed.rows, mindspeed.stretches
    row = table.num_old
    stop = row + table.num_last
    table.num_old = stop
    while row < stop:
        key, following = rows[table.old + row].key, row + 1
        size = key >> 32
        while following < stop and rows[table.old + following].key >> 32 == size:
            following += 1
        before = mindspeed.tails[table.sizes + size]
        if before < 0 or key < rows[table.old + stretches[table.known + before].first].key:
            number = table.num_known
            table.num_known = number + 1
            stretch = stretches[table.known + number]
            stretch.first, stretch.last, stretch.next = row, following, -1
            if before < 0:
                mindspeed.heads[table.sizes + size] = number
            else:
                stretches[table.known + before].next = number
            mindspeed.tails[table.sizes + size] = number
        row = following
