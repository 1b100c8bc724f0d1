"""Entries of a snapshot's trace as columns, whether they were stored as rows or, if unusual, as dicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.sources.pickles import rows
from memdiag.trace import schema
from memdiag.trace.schema import ENTRY, LINES, NUMBER, TEXT
from memdiag.trace.snapshot_fields import fields_of
from memdiag.trace.table import Array

ACTIONS = {**schema.ACTION_CODES, "free": schema.FREE_COMPLETED}
FIELDS = fields_of(ENTRY)
MISSING = {field.column: field.missing for field in FIELDS if field.kind == NUMBER}
TEXTS = [field for field in FIELDS if field.kind == TEXT]
TRACEBACKS = [field for field in FIELDS if field.kind == LINES]
ENTRIES = rows.described(FIELDS, ACTIONS, ("action", "size"))


class Entries(NamedTuple):
    """Columns of entries.

    Attributes:
        seen: Keys that occur.
        action: Codes (``schema.ACTIONS``).
        numbers: int64, by column; for a failed request, "addr" is device_free.
        frames: int32, the box of each list of frames, or -1.
        pools: (entries, 2), pool ids, -1 if absent; None if no entry has one.
        texts: int32, by column: string rows on the tape, or -1. Columns that no entry has are omitted.
        tracebacks: int32, by column: the box of each list of lines, or -1. Columns that no entry has are omitted.
    """

    seen: set[str]
    action: Array
    numbers: dict[str, Array]
    frames: Array
    pools: Array | None
    texts: dict[str, Array]
    tracebacks: dict[str, Array]


def stored_entries(stored: rows.EntryRows, chosen: Array) -> Entries:
    """Returns the entries stored as rows ``chosen``, as views if they are contiguous."""
    first, count = int(chosen[0]), len(chosen)
    pick = slice(first, first + count) if (np.diff(chosen) == 1).all() else chosen
    seen = {field.name for number, field in enumerate(FIELDS) if int(stored.seen[0]) >> number & 1}
    numbers = {name: stored.numbers[slot][pick] for slot, name in enumerate(rows.columns_of(FIELDS, "numbers"))}
    links = {name: stored.links[slot][pick] for slot, name in enumerate(rows.columns_of(FIELDS, "links"))}
    pools = stored.pairs[0][pick] if "pool_id" in seen else None
    return Entries(
        seen,
        stored.word[pick],
        numbers,
        links.pop("stack"),
        pools,
        {f.column: links[f.column] for f in TEXTS if f.name in seen},
        {f.column: links[f.column] for f in TRACEBACKS if f.name in seen},
    )


def merged(one: Entries, other: Entries, is_one: Array) -> Entries:
    """Returns entries of both kinds in order.

    Args:
        is_one: Whether each entry is of the first kind.
    """

    def both(first: Array, second: Array) -> Array:
        column = np.empty((len(is_one), *first.shape[1:]), np.result_type(first, second))
        column[is_one], column[~is_one] = first, second
        return column

    def either(first: Array | None, second: Array | None, shape: tuple[int, ...] = ()) -> Array:
        given = zip((first, second), (one, other), strict=True)
        return both(*(np.full((len(each.action), *shape), -1) if column is None else column for column, each in given))

    has_pools = one.pools is not None or other.pools is not None
    return Entries(
        one.seen | other.seen,
        both(one.action, other.action),
        {name: both(one.numbers[name], other.numbers[name]) for name in one.numbers},
        both(one.frames, other.frames),
        either(one.pools, other.pools, (2,)) if has_pools else None,
        *(
            {name: either(mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
            for mine, theirs in ((one.texts, other.texts), (one.tracebacks, other.tracebacks))
        ),
    )
