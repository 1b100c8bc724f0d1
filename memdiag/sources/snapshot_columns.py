"""Columns of a snapshot's rows, from the values of its pickle: sizes, flags, texts and pool ids, all checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from memdiag.results.finding import Note
from memdiag.sources.pickles import Tape
from memdiag.sources.pickles import tags as m
from memdiag.sources.pickles.kernels import fill_pairs, integers
from memdiag.sources.snapshot_frames import FrameReader
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.schema import (
    ACTIVE_PENDING_FREE,
    BLOCK,
    BOXED,
    FIELDS,
    FLAG,
    LINES,
    NUMBER,
    PAIR,
    SEGMENT,
    SIZE,
    TEXT,
    WORD,
)
from memdiag.trace.snapshot_fields import columns_of, fields_of
from memdiag.trace.table import Array, Table

MOST_BYTES = 1 << 50  # more than any device has: a damaged or hostile number
_MOST_IN_ALL = 1 << 62  # keeps sums within 64 bits
# Rows may share their parts, so a few bytes can encode a row that takes some hundred bytes of memory. Genuine files use
# at least 38 bytes for each.
_ROWS_FLOOR = 500_000
_BYTES_A_ROW = 20

_ALSO = {(BLOCK, "state"): {"active_awaiting_free": ACTIVE_PENDING_FREE}}  # the older word
_NOTHING = {field.constant for field in FIELDS if field.kind == TEXT}
_NAMED = {(SEGMENT, "total_size"): "segment", (BLOCK, "size"): "block"}  # in messages


def checked(numbers: Array, what: str, missing: int) -> Array:
    """Returns sizes in bytes unchanged, after a check.

    Raises:
        ValueError: No program can have such sizes.
    """
    if len(numbers) and (numbers.max() > MOST_BYTES or numbers.min() < min(missing, 0)):
        raise ValueError(
            f"absurd {what}: {int(numbers.max())} bytes" if numbers.max() > MOST_BYTES else f"negative {what}"
        )
    if numbers.sum(dtype=np.float64) > _MOST_IN_ALL:
        raise ValueError(f"absurd {what}: more than any program ever used")
    return numbers


class ColumnReader:
    """Reads columns of one snapshot, and adds notes on unknown values.

    Args:
        tape: The decoded pickle.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.notes: list[Note] = []
        self.frames = FrameReader(tape)
        self.strings: dict[str, int] = {}  # texts of entries, numbered
        self._rows_left = _ROWS_FLOOR + tape.num_bytes // _BYTES_A_ROW

    def take_rows(self, count: int) -> None:
        """Counts rows that are about to be created.

        Raises:
            ValueError: There are more than a file of this size can contain.
        """
        self._rows_left -= count
        if self._rows_left < 0:
            raise ValueError("it lists more segments, blocks and entries than its size allows (a memory bomb)")

    def python(self, root: int, key: str) -> Any:
        """Returns the value under ``key`` in a dict as a Python object, or None if missing."""
        value = self.tape.get(root, key)
        return None if value is None else self.tape.python(value)

    def unknown(self, keys: Iterable[str], what: str) -> None:
        """Adds a note on unknown keys or values.

        Args:
            what: Last part of the key of the note's text.
        """
        names = sorted(keys)
        if names:
            shown = ", ".join(repr(n[:40]) for n in names[:8])
            note = Note("MD903", phrase(f"notes.unknown.{what}", names=f"{shown}{' …' if len(names) > 8 else ''}"))
            if note not in self.notes:  # stored and unusual entries of one trace may have the same keys
                self.notes.append(note)

    def bytes(self, values: Array, what: str, missing: int = -1) -> Array:
        """Returns a column of sizes in bytes, checked, with ``missing`` for absent ones."""
        return checked(integers(values, missing), what, missing)

    def flags(self, values: Array) -> Array:
        """Returns which values of a column are True."""
        return np.asarray(values == (m.C_TRUE << 3 | m.CONST))

    def texts(self, values: Array, codes: dict[str, int], otherwise: int) -> tuple[Array, list[str]]:
        """Maps a column of texts to numbers; returns it and the texts without a number."""
        codes_of = np.full(len(self.tape.string_at) + 1, otherwise, np.int32)
        is_text = values & 7 == m.STR
        rows = np.where(
            is_text, self.tape.canonical[np.where(is_text, values >> 3, 0)] if len(self.tape.string_at) else 0, -1
        )
        strange = []
        for row in np.unique(rows[rows >= 0]):
            text = str(self.tape.text(int(row)))
            if text in codes:
                codes_of[row] = codes[text]
            else:
                strange.append(text)
        return codes_of[rows], strange

    def table_columns(self, level: str, columns: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, list[str]]]:
        """Returns the columns of segments or blocks, and the unknown words of each field.

        Args:
            level: SEGMENT or BLOCK.
            columns: The values of each key on the tape.
        """
        found: dict[str, Array] = {}
        strange: dict[str, list[str]] = {}
        for field in fields_of(level):
            values = columns[field.name]
            if not field.column:
                continue
            if field.kind == SIZE:
                found[field.column] = self.bytes(values, _NAMED.get((level, field.name), field.name), field.missing)
            elif field.kind == NUMBER:
                found[field.column] = integers(values, field.missing)
            elif field.kind == FLAG:
                found[field.column] = self.flags(values)
            elif field.kind == WORD:
                codes = {word: code for code, word in enumerate(field.words)} | _ALSO.get((level, field.name), {})
                found[field.column], strange[field.name] = self.texts(values, codes, field.missing)
            elif field.kind == PAIR:
                pairs = self.pools(values)
                pairs = np.zeros((len(values), 2), np.int64) if pairs is None else np.where(pairs < 0, 0, pairs)
                found |= dict(zip(columns_of(field), pairs.T, strict=True))
            elif field.kind == BOXED:
                found[field.column] = self.frames.ids(values)
            elif field.kind == LINES:
                found[field.column] = self.frames.tracebacks(values)
            else:
                found[field.column] = self.strings_of(np.where(values & 7 == m.STR, values >> 3, -1))
        return found, strange

    def pools(self, values: Array) -> Array | None:
        """Reads pool ids, tuples of two numbers, as (rows, 2), with -1 for absent ones."""
        if not (values & 7 == m.BOX).any():
            return None
        tape = self.tape
        pools, good = fill_pairs(values, tape.boxes)
        if not good:
            raise ValueError("a pool id is not a pair of numbers")
        return pools

    def strings_of(self, column: Array) -> Array:
        """Returns texts as int32 indices into the strings of the trace; -1: absent, empty, or a word for nothing."""
        number = np.full(len(self.tape.string_at) + 1, -1, np.int32)
        there = np.zeros(len(number), bool)
        there[column] = True  # index -1 is the last entry
        for row in np.flatnonzero(there[:-1]).tolist():
            text = str(self.tape.text(row))
            if text and text not in _NOTHING:
                number[row] = self.strings.setdefault(text, len(self.strings))
        if (number < 0).all():
            return np.broadcast_to(np.int32(-1), len(column))  # takes no memory
        return np.asarray(number[column])

    def annotations(self, value: int | None) -> tuple[tuple[str, ...], Table]:
        """Returns the names of annotated spans, which follow the texts of entries, and the table of the spans."""
        if value is None or self.tape.kind(value) not in (m.LIST, m.TUPLE):
            return (), Table.empty(schema.ANNOTATIONS)
        self.take_rows(int(self.tape.box_size[value >> 3]))
        columns, others = self.tape.rows(self.tape.list_items(value), ("name", "stage", "device", "time_us"))
        stage, strange = self.texts(columns["stage"], {"START": 1, "END": 0}, -1)
        self.unknown(others, "annotation")
        self.unknown(strange, "stage")
        is_text = columns["name"] & 7 == m.STR
        good = (stage >= 0) & is_text
        rows = self.tape.canonical[columns["name"][good] >> 3]
        distinct, index = np.unique(rows, return_inverse=True)
        names = tuple(str(self.tape.text(int(row))) for row in distinct)
        return names, Table(
            schema.ANNOTATIONS,
            {
                "name": index + len(self.strings),
                "start": stage[good] == 1,
                "device": integers(columns["device"][good], -1),
                "time_us": integers(columns["time_us"][good], -1),
            },
        )
