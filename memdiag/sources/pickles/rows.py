"""Stores trace entries as rows of columns while the pickle is read.

So a million dicts are never created, not even on the tape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from memdiag.sources.pickles.tags import BOX, CONST, INT, STR
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import BOXED, LINES, NUMBER, PAIR, TEXT, WORD, Field
from memdiag.trace.table import Array

_FIRST_WORD = 32  # string codes from here on are values of the word field, below are fields
_LARGEST = (1 << 31) - 1
_STORED = {NUMBER: "numbers", BOXED: "links", TEXT: "links", LINES: "links", PAIR: "pairs", WORD: "word"}


class EntryRows(NamedTuple):
    """Fields of entries, and their columns.

    Attributes:
        texts, text_at, text_code: Field names and values of the word field: bytes, offsets, codes.
        kind, slot: Kind of each field, and its row in the columns of that kind.
        required: Bits of the fields that every entry has.
        missing: Value of each NUMBER in entries without it.
        numbers: int64 (fields of kind NUMBER, rows).
        links: int32 (fields of kinds BOXED, LINES and TEXT, rows): the box, or the row of the string, or -1.
        pairs: int32 (fields of kind PAIR, rows, 2), or -1.
        word: int8 (rows).
        seen: int64 (1): bits of the fields that any entry has.
        others: bool per string: whether it is a key of an entry but not a field.
    """

    texts: Array
    text_at: Array
    text_code: Array
    kind: Array
    slot: Array
    required: Array
    missing: Array
    numbers: Array
    links: Array
    pairs: Array
    word: Array
    seen: Array
    others: Array


def described(fields: Sequence[Field], words: Mapping[str, int], required: tuple[str, ...]) -> EntryRows:
    """Returns columns for entries of these fields, without rows.

    Args:
        fields: Fields to read. Fields of one column share it, since no entry has both; at most one column holds words.
        words: Values of the word field, and the number that each is stored as.
        required: Fields that every entry must have.
    """
    names = [field.name for field in fields]
    texts = [name.encode() for name in (*names, *words)]
    codes = [*range(len(names)), *(_FIRST_WORD + number for number in words.values())]
    columns = {storage: columns_of(fields, storage) for storage in _STORED.values()}
    slots = [columns[_STORED[field.kind]].index(field.column) for field in fields]
    missing = {field.column: field.missing for field in fields if field.kind == NUMBER}
    bits = sum(1 << names.index(name) for name in required) or 1 << 62  # no dict has this code
    return EntryRows(
        texts=np.frombuffer(b"".join(texts), np.uint8),
        text_at=np.cumsum([0, *(len(text) for text in texts)]),
        text_code=np.array(codes, np.int64),
        kind=np.array([field.kind for field in fields], np.int64),
        slot=np.array(slots, np.int64),
        required=np.array([bits], np.int64),
        missing=np.array(list(missing.values()), np.int64),
        numbers=np.empty((len(columns["numbers"]), 0), np.int64),
        links=np.empty((len(columns["links"]), 0), np.int32),
        pairs=np.empty((len(columns["pairs"]), 0, 2), np.int32),
        word=np.empty(0, np.int8),
        seen=np.zeros(1, np.int64),
        others=np.zeros(0, np.bool_),
    )


def columns_of(fields: Sequence[Field], storage: str) -> list[str]:
    """Returns the columns of ``EntryRows.numbers``, ``links``, ``pairs`` or ``word``, in order."""
    return list(dict.fromkeys(field.column for field in fields if _STORED[field.kind] == storage))


def empty_rows(fields: EntryRows, count: int, strings: int) -> EntryRows:
    """Returns the same fields with columns of ``count`` rows, for a pickle with that many strings."""
    return fields._replace(
        numbers=np.empty((len(fields.numbers), count), np.int64),
        links=np.empty((len(fields.links), count), np.int32),
        pairs=np.empty((len(fields.pairs), count, 2), np.int32),
        word=np.empty(count, np.int8),
        seen=np.zeros(1, np.int64),
        others=np.zeros(strings, np.bool_),
    )


def first_rows(rows: EntryRows, count: int, strings: int) -> EntryRows:
    """Returns the columns truncated to the rows and strings that were written."""
    return rows._replace(
        numbers=rows.numbers[:, :count],
        links=rows.links[:, :count],
        pairs=rows.pairs[:, :count],
        word=rows.word[:count],
        others=rows.others[:strings],
    )


@lean_part
def text_code(buf: Array, at: int, length: int, rows: EntryRows) -> int:
    """Returns the role of a string in entries: a field number, 32 + a value of the word field, or -1."""
    for k in range(len(rows.text_code)):
        start = rows.text_at[k]
        if rows.text_at[k + 1] - start != length:
            continue
        same = True
        for i in range(length):
            if rows.texts[start + i] != buf[at + i]:
                same = False
                break
        if same:
            return int(rows.text_code[k])
    return -1


@lean_part
def store_row(row: int, first: int, top: int, stack: Array, store: Any) -> bool:
    """Writes a dict, alternating keys and values in stack[first:top], as row ``row``.

    Returns False if it is not a regular entry.
    """
    rows, role = store.rows, store.string_code
    numbers, links, pairs = rows.numbers, rows.links, rows.pairs
    for slot in range(len(numbers)):
        numbers[slot, row] = rows.missing[slot]
    for slot in range(len(links)):
        links[slot, row] = -1
    for slot in range(len(pairs)):
        pairs[slot, row, 0] = pairs[slot, row, 1] = -1
    found, num_others = np.int64(0), 0
    for i in range(first, top, 2):
        if stack[i] & 7 != STR:
            return False
        field = np.int64(role[stack[i] >> 3])
        if 0 <= field < _FIRST_WORD:
            found |= np.int64(1) << field
            if not _store_value(row, field, stack[i + 1], store):
                return False
        else:
            num_others += 1
    if found & rows.required[0] != rows.required[0]:
        return False
    rows.seen[0] |= found
    if num_others > 0:
        for i in range(first, top, 2):
            name = stack[i] >> 3
            if not 0 <= role[name] < _FIRST_WORD:
                rows.others[name] = True
    return True


@lean_part
def _store_value(row: int, field: Any, value: int, store: Any) -> bool:
    """Writes one value of a row; False if the field cannot have it."""
    rows = store.rows
    kind, slot = rows.kind[field], rows.slot[field]
    if kind == NUMBER:
        rows.numbers[slot, row] = value >> 3
        return value & 7 == INT
    if kind == WORD:
        code = np.int64(store.string_code[value >> 3]) if value & 7 == STR else np.int64(-1)
        rows.word[row] = max(code - _FIRST_WORD, -1)
        return bool(code >= _FIRST_WORD)
    if kind in (BOXED, LINES, TEXT):
        rows.links[slot, row] = value >> 3 if value & 7 == (STR if kind == TEXT else BOX) else -1
        return True
    if value & 7 != BOX:
        return value & 7 == CONST
    box = value >> 3
    if store.box_size[box] != 2 or store.chunk_size[store.box_first[box]] != 2:
        return False
    at = store.chunk_start[store.box_first[box]]
    one, other = store.items[at], store.items[at + 1]
    if one & 7 != INT or other & 7 != INT or max(abs(one >> 3), abs(other >> 3)) > _LARGEST:
        return False
    rows.pairs[slot, row, 0], rows.pairs[slot, row, 1] = one >> 3, other >> 3
    return True
