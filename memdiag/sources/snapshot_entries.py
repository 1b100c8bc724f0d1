"""Entries of a snapshot's trace: the fields that are read, and their columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.sources.pickles import rows
from memdiag.trace import schema
from memdiag.trace.table import Array

ACTIONS = {**schema.ACTION_CODES, "free": schema.FREE_COMPLETED}
ENTRY_FIELDS = {
    "action": rows.WORD, "addr": rows.NUMBER, "device_free": rows.NUMBER, "size": rows.NUMBER, "stream": rows.NUMBER,
    "time_us": rows.NUMBER, "frames": rows.BOXED, "pool_id": rows.PAIR,
}  # fmt: skip
MISSING = {"addr": -1, "size": -1, "stream": 0, "time_us": -1}  # the value of a number that an entry lacks
# What failed has no address, but device_free.
ENTRIES = rows.fields(ENTRY_FIELDS, ACTIONS, MISSING, ("action", "size"), {"device_free": "addr"})


class Entries(NamedTuple):
    """Columns of entries.

    Attributes:
        seen: The keys that occur.
        action: Codes (``schema.ACTIONS``).
        numbers: int64, by field; of an entry that failed, "addr" is device_free.
        frames: int32, the box of each list of frames; -1: none.
        pools: (entries, 2), ids of pools, -1: none; None: no entry has one.
    """

    seen: set[str]
    action: Array
    numbers: dict[str, Array]
    frames: Array
    pools: Array | None


def stored_entries(stored: rows.Rows, chosen: Array) -> Entries:
    """Returns the entries that were stored as rows ``chosen``, as views where they follow each other."""
    first, count = int(chosen[0]), len(chosen)
    pick = slice(first, first + count) if (np.diff(chosen) == 1).all() else chosen
    seen = {name for number, name in enumerate(ENTRY_FIELDS) if int(stored.seen[0]) >> number & 1}
    numbers = {name: stored.numbers[slot][pick] for slot, name in enumerate(MISSING)}
    pools = stored.pairs[0][pick] if "pool_id" in seen else None
    return Entries(seen, stored.word[pick], numbers, stored.boxes[0][pick], pools)


def merged(one: Entries, other: Entries, is_one: Array) -> Entries:
    """Returns entries of both kinds in their order; ``is_one``: which of them are of the first."""

    def both(first: Array, second: Array) -> Array:
        column = np.empty((len(is_one), *first.shape[1:]), np.result_type(first, second))
        column[is_one], column[~is_one] = first, second
        return column

    pools = None
    if one.pools is not None or other.pools is not None:
        none = [np.full((len(each.action), 2), -1) if each.pools is None else each.pools for each in (one, other)]
        pools = both(*none)
    numbers = {name: both(one.numbers[name], other.numbers[name]) for name in one.numbers}
    return Entries(one.seen | other.seen, both(one.action, other.action), numbers, both(one.frames, other.frames), pools)
