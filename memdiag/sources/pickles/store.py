"""The arrays that the pickle machine writes: the tape.

Repeated values are stored once: short strings, pairs, lists of frames.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from memdiag.sources.pickles.rows import EntryRows, empty_rows, first_rows, text_code
from memdiag.sources.pickles.tags import BOX, DICT, LIST, PENDING, TUPLE, UTF8
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# Indices into the vector of counts.
N_ITEMS, N_STACK, N_MEMO, N_BOXES, N_CHUNKS, N_STRINGS, N_REALS, N_ARENA, N_ROWS, N_FETCHED, N_COUNTS = range(11)
_BYTES_OF_EACH = (8, 8, 1, 13, 16, 14, 8, 1, 0, 8)

_RECENT = 1 << 12  # number of strings, pairs and lists to remember, each in the slot of its hash
_SHORT_STRING = 64
_SHORT_LIST = 1000  # longer lists are pickled in parts of this length
_SHARED = -2  # in chunk_next: several lists share this chunk, so nothing may be linked to it
_MEMO_BLOCK = 16
_MEMO_DIRECT = 1 << 22  # the first entries, among them the keys, are read repeatedly: each has a fixed slot
_PRIME = np.int64(16777619)  # of FNV-1a, 32 bit: within 64 bits without overflow (plain Python would warn)
_BITS = np.int64(0xFFFFFFFF)


class Store(NamedTuple):
    """Output of the second run.

    Attributes:
        stack, items: Tagged values.
        memo: Tagged values xor NONE_THERE, so that zero means empty: the first memo entries, and of the others those
            that are ever read.
        memo_direct: The number of the first entries.
        memo_rank: Number of the others that are ever read, before each block of _MEMO_BLOCK entries.
        box_kind, box_size, box_first, box_last: Kind of each box, its number of items, and its first and last chunk
            (-1: none).
        chunk_start, chunk_size, chunk_next: Ranges of ``items``, linked.
        arena: Bytes of all strings. string_at, string_size, string_coding: Offset, length and encoding of each.
        string_code: Role of each string in ``rows``: a field, a value of its word field, or -1.
        reals: Bits of each float, as int64.
        recent: (3, _RECENT), 1 + the last string, pair and chunk with each hash.
        rows: Columns of entries.
    """

    stack: Array
    memo: Array
    memo_direct: int
    memo_rank: Array
    items: Array
    box_kind: Array
    box_size: Array
    box_first: Array
    box_last: Array
    chunk_start: Array
    chunk_size: Array
    chunk_next: Array
    arena: Array
    string_at: Array
    string_size: Array
    string_coding: Array
    string_code: Array
    reals: Array
    recent: Array
    rows: EntryRows


def needed_bytes(counts: Array) -> int:
    """Returns an upper bound of the memory that a tape with these counts takes."""
    return sum(int(count) * size for count, size in zip(counts, _BYTES_OF_EACH, strict=True))


def allocate(counts: Array, fetched: Array, rows: EntryRows) -> Store:
    """Returns the arrays that ``run`` writes into. Untouched pages take no memory.

    Args:
        counts: Counts of a dry run, or zeros for the dry run itself.
        fetched: bool per memo entry: whether it is ever read.
        rows: The fields of entries.
    """
    n, boxes, strings = counts, counts[N_BOXES], counts[N_STRINGS]
    chunks, items = 2 * n[N_CHUNKS], 2 * n[N_ITEMS]  # a list that shares its first chunk may need a copy of it
    direct, later = min(_MEMO_DIRECT, len(fetched)), fetched[_MEMO_DIRECT:]
    blocks = (
        np.add.reduceat(later, np.arange(0, len(later), _MEMO_BLOCK), dtype=np.int64)
        if len(later)
        else np.zeros(0, np.int64)
    )
    return Store(
        stack=np.empty(n[N_STACK], np.int64),
        memo=np.zeros(direct + int(blocks.sum()), np.int64),
        memo_direct=direct,
        memo_rank=(np.cumsum(blocks) - blocks).astype(np.int32),
        items=np.empty(items, np.int64),
        box_kind=np.empty(boxes, np.int8),
        box_size=np.empty(boxes, np.int32),
        box_first=np.empty(boxes, np.int32),
        box_last=np.empty(boxes, np.int32),
        chunk_start=np.empty(chunks, np.int64),
        chunk_size=np.empty(chunks, np.int32),
        chunk_next=np.empty(chunks, np.int32),
        arena=np.empty(n[N_ARENA], np.uint8),
        string_at=np.empty(strings, np.int64),
        string_size=np.empty(strings, np.int32),
        string_coding=np.empty(strings, np.int8),
        string_code=np.empty(strings, np.int8),
        reals=np.empty(n[N_REALS], np.int64),
        recent=np.zeros((3, _RECENT), np.int64),
        rows=empty_rows(rows, int(n[N_ROWS]), int(strings)),
    )


def used(store: Store, counts: Array) -> Store:
    """Returns the arrays of boxes, strings and rows without their unused ends."""
    boxes, strings = int(counts[N_BOXES]), int(counts[N_STRINGS])
    trimmed = {name: getattr(store, name)[:boxes] for name in ("box_kind", "box_size", "box_first", "box_last")}
    trimmed |= {
        name: getattr(store, name)[:strings] for name in ("string_at", "string_size", "string_coding", "string_code")
    }
    return store._replace(**trimmed, rows=first_rows(store.rows, int(counts[N_ROWS]), strings))


@lean_part
def memo_slot(index: int, fetched: Array, store: Store) -> int:
    """Returns the index in ``store.memo`` of a memo entry that is ever read."""
    direct = store.memo_direct
    if index < direct:
        return index
    block = (index - direct) // _MEMO_BLOCK
    slot = direct + np.int64(store.memo_rank[block])
    for before in range(direct + block * _MEMO_BLOCK, index):
        if fetched[before]:
            slot += 1
    return int(slot)


@lean_part
def _mixed(code: Any, value: Any) -> Any:
    """Returns a hash updated with one more value."""
    return (code ^ (value & _BITS) ^ (value >> 32 & _BITS)) * _PRIME & _BITS


@lean_part
def _slot_of(code: Any) -> int:
    return int((code ^ code >> 15) & (_RECENT - 1))


@lean_part
def keep_string(buf: Array, at: int, length: int, coding: int, counts: Array, store: Store) -> int:
    """Returns the row of a string; a recently seen equal string is reused."""
    slot: Any = -1
    if length <= _SHORT_STRING:
        code: Any = length * 8 + coding
        for i in range(at, at + length):
            code = _mixed(code, np.int64(buf[i]))
        slot = _slot_of(code)
        known = store.recent[0, slot] - 1
        if known >= 0 and store.string_size[known] == length and store.string_coding[known] == coding:
            start = store.string_at[known]
            same = True
            for i in range(length):
                if store.arena[start + i] != buf[at + i]:
                    same = False
                    break
            if same:
                return int(known)
    row, start = counts[N_STRINGS], counts[N_ARENA]
    for i in range(length):
        store.arena[start + i] = buf[at + i]
    store.string_at[row], store.string_size[row], store.string_coding[row] = start, length, coding
    store.string_code[row] = text_code(buf, at, length, store.rows) if coding == UTF8 else -1
    if slot >= 0:
        store.recent[0, slot] = row + 1
    counts[N_STRINGS] += 1
    counts[N_ARENA] += length
    return int(row)


@lean_part
def new_box(kind: int, counts: Array, store: Store) -> int:
    """Creates an empty box; returns its number."""
    box = counts[N_BOXES]
    counts[N_BOXES] += 1
    store.box_kind[box], store.box_size[box], store.box_first[box], store.box_last[box] = kind, 0, -1, -1
    return int(box)


@lean_part
def _new_chunk(start: Any, size: Any, counts: Array, store: Store) -> int:
    """Creates a chunk of items without a successor; returns its number."""
    chunk = counts[N_CHUNKS]
    counts[N_CHUNKS] += 1
    store.chunk_start[chunk], store.chunk_size[chunk], store.chunk_next[chunk] = start, size, -1
    return int(chunk)


@lean_part
def filled(value: int, counts: Array, store: Store) -> int:
    """Returns a value in a form that others may refer to: a dict that waited for items gets a box."""
    return new_box(DICT, counts, store) << 3 | BOX if value == PENDING else value


@lean_part
def pair_box(one: int, other: int, counts: Array, store: Store) -> int:
    """Returns the box of a tuple of two; a recently seen equal pair is reused, since tuples are immutable."""
    slot = _slot_of(_mixed(_mixed(np.int64(0), one), other))
    known = store.recent[1, slot] - 1
    if known >= 0 and PENDING not in (one, other):
        at = store.chunk_start[store.box_first[known]]
        if store.items[at] == one and store.items[at + 1] == other:
            return int(known)
    box, start = new_box(TUPLE, counts, store), counts[N_ITEMS]
    counts[N_ITEMS] += 2
    store.items[start], store.items[start + 1] = filled(one, counts, store), filled(other, counts, store)
    store.box_first[box] = store.box_last[box] = _new_chunk(start, 2, counts, store)
    store.box_size[box] = 2
    store.recent[1, slot] = box + 1
    return box


@lean_part
def _list_slot(first: int, taken: int, store: Store) -> int:
    """Returns the slot in which lists of such values are remembered."""
    code = np.int64(taken)
    for i in range(first, first + taken):
        code = _mixed(code, store.stack[i])
    return _slot_of(code)


@lean_part
def _same_chunk(slot: int, first: int, taken: int, store: Store) -> int:
    """Returns the chunk of the last list in that slot if it begins its list and holds these values, else -1."""
    known = store.recent[2, slot] - 1
    if known < 0 or store.chunk_size[known] != taken or store.chunk_next[known] >= 0:
        return -1
    start = store.chunk_start[known]
    for i in range(taken):
        value = store.stack[first + i]
        if store.items[start + i] != value or value == PENDING:
            return -1
    return int(known)


@lean_part
def append(box: int, first: int, taken: int, counts: Array, store: Store) -> None:
    """Appends ``taken`` values of the stack, beginning at ``first``, to a box."""
    slot = -1
    last = store.box_last[box]
    if last < 0 and store.box_kind[box] == LIST and 1 < taken < _SHORT_LIST:
        slot = _list_slot(first, taken, store)
        known = _same_chunk(slot, first, taken, store)
        if known >= 0:
            store.chunk_next[known] = _SHARED
            store.box_first[box] = store.box_last[box] = known
            store.box_size[box] = taken
            return
    if last >= 0 and store.chunk_next[last] == _SHARED:
        last = np.int64(_own_chunk(box, counts, store))
    start = counts[N_ITEMS]
    counts[N_ITEMS] += taken
    for i in range(taken):
        store.items[start + i] = filled(store.stack[first + i], counts, store)
    chunk = _new_chunk(start, taken, counts, store)
    if last < 0:
        store.box_first[box] = chunk
    else:
        store.chunk_next[last] = chunk
    store.box_last[box] = chunk
    store.box_size[box] += taken
    if slot >= 0:
        store.recent[2, slot] = chunk + 1


@lean_part
def _own_chunk(box: int, counts: Array, store: Store) -> int:
    """Copies the shared only chunk of a list, and returns the copy."""
    shared, start = store.box_last[box], counts[N_ITEMS]
    size = np.int64(store.chunk_size[shared])
    counts[N_ITEMS] += size
    for i in range(size):
        store.items[start + i] = store.items[store.chunk_start[shared] + i]
    chunk = _new_chunk(start, size, counts, store)
    store.box_first[box] = store.box_last[box] = chunk
    return chunk
