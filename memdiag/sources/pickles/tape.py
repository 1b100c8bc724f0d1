"""Content of a pickle, read from the tape: single values as Python objects, long lists of dicts as columns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.sources.pickles import machine as m
from memdiag.sources.pickles import store as st
from memdiag.sources.pickles import tags as t
from memdiag.sources.pickles.kernels import Boxes, canonical_strings, fill_table, flatten, total_items
from memdiag.sources.pickles.opcodes import FORBIDDEN_OPCODES
from memdiag.sources.pickles.rows import EntryRows, described
from memdiag.text import phrase
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

_MAX_DEPTH = 200
_MAX_VALUES = 200_000  # converted into Python objects: settings, marks
# Snapshots of all versions take up to 5.3 bytes of tape per byte of pickle.
_TAPE_FLOOR = 64 * MIB
_TAPE_RATIO = 10
_WHOLE = 256 * MIB  # files of up to this size are read once and stay in memory until they are decoded
_PIECE = 4 * MIB
_BEHIND = 1024  # bytes around an opcode that contain the name it requests


class Tape:
    """A decoded pickle. Values are tagged int64 (see ``machine``).

    Attributes:
        root: The value of the whole pickle.
        num_bytes: Number of bytes of the pickle, which others may follow.
        entries: Columns of the dicts that were stored as rows.
        buf: Bytes of all strings.
    """

    def __init__(self, num_bytes: int, root: int, store: st.Store) -> None:
        self.items, self.box_kind, self.box_size, self.box_first = (
            store.items,
            store.box_kind,
            store.box_size,
            store.box_first,
        )
        self.chunk_start, self.chunk_size, self.chunk_next = store.chunk_start, store.chunk_size, store.chunk_next
        self.buf, self.string_at, self.string_size, self.string_coding = (
            store.arena,
            store.string_at,
            store.string_size,
            store.string_coding,
        )
        self._reals = store.reals
        self.entries = store.rows
        self.num_bytes = num_bytes
        self.root = root
        self._texts: dict[int, Any] = {}
        self._rows_of: dict[str, Array] = {}

    @cached_property
    def boxes(self) -> Boxes:
        """The items of all boxes, for compiled functions."""
        return Boxes(self.items, self.box_first, self.box_size, self.chunk_start, self.chunk_size, self.chunk_next)

    @cached_property
    def canonical(self) -> Array:
        """int32 per string row: the first row with the same bytes and encoding."""
        return canonical_strings(self.buf, self.string_at, self.string_size, self.string_coding)

    @cached_property
    def _distinct(self) -> Array:
        return np.unique(self.canonical)

    def rows_of(self, text: str) -> Array:
        """Returns the canonical rows of strings equal to ``text`` (ASCII): one for each encoding that occurs."""
        if text not in self._rows_of:
            found = []
            codings = self.string_coding[self._distinct]
            for coding, written in (
                (t.UTF8, text),
                (t.RAW_ESCAPE, text),
                (t.QUOTED, f"'{text}'"),
                (t.QUOTED, f'"{text}"'),
            ):
                rows = self._distinct[(codings == coding) & (self.string_size[self._distinct] == len(written))]
                for at, byte in enumerate(written.encode()):
                    rows = rows[self.buf[self.string_at[rows] + at] == byte]
                found.append(rows)
            self._rows_of[text] = np.concatenate(found)
        return self._rows_of[text]

    def text(self, row: int) -> Any:
        """Returns the text, bytes or long integer in a row of strings.

        Raises:
            ValueError: The bytes do not match their type.
        """
        if row not in self._texts:
            start = int(self.string_at[row])
            raw = self.buf[start : start + int(self.string_size[row])].tobytes()
            self._texts[row] = _decode(raw, int(self.string_coding[row]))
        return self._texts[row]

    def kind(self, value: int) -> int:
        """Returns the kind of box (LIST, DICT, TUPLE, SET) of a value, or -1 if it is not a box."""
        return int(self.box_kind[value >> 3]) if value & 7 == t.BOX else -1

    def list_items(self, value: int) -> Array:
        """Returns the tagged values in a list, tuple or set; for a dict, keys and values alternate."""
        chunk = int(self.box_first[value >> 3])
        if chunk < 0:
            return self.items[:0]
        if self.chunk_next[chunk] < 0:
            start = int(self.chunk_start[chunk])
            return self.items[start : start + int(self.chunk_size[chunk])]
        boxes = np.array([value >> 3], np.int64)
        return flatten(boxes, self.boxes, total_items(boxes, self.box_size))

    def python(self, value: int) -> Any:
        """Returns a value as Python objects.

        Raises:
            ValueError: It is nested too deep, contains itself, has too many parts (shared ones count each time),
                contains a damaged text or number, or has an invalid key.
        """
        return self._python(value, 0, [0])

    def _python(self, value: int, depth: int, made: list[int]) -> Any:
        made[0] += 1
        if made[0] > _MAX_VALUES:
            raise ValueError(f"a part of it unfolds to more than {_MAX_VALUES:,} values (a memory bomb)")
        tag, payload = value & 7, value >> 3
        if tag == t.INT:
            return payload
        if tag == t.CONST:
            if payload >= t.ROW_0:
                raise ValueError("an entry of a trace where settings or marks belong")
            return (None, False, True)[payload]
        if tag == t.REAL:
            return float(self._reals[payload : payload + 1].view(np.float64)[0])
        if tag != t.BOX:
            return self.text(payload)
        if depth > _MAX_DEPTH:
            raise ValueError("a part of it is nested too deep, or contains itself")
        values = [self._python(item, depth + 1, made) for item in self.list_items(value).tolist()]
        kind = self.box_kind[payload]
        if kind == t.DICT:
            if not all(isinstance(key, str | int | float | tuple | bytes) for key in values[::2]):
                raise ValueError("a dict key of a strange type")
            return dict(zip(values[::2], values[1::2], strict=True))
        return tuple(values) if kind == t.TUPLE else values

    def get(self, value: int, key: str) -> int | None:
        """Returns the tagged value under ``key`` in a dict, or None if it is missing or ``value`` is not a dict."""
        if self.kind(value) != t.DICT:
            return None
        items = self.list_items(value)
        for name, held in zip(items[-2::-2], items[::-2], strict=True):  # the last of equal keys wins
            if name & 7 == t.STR and self.text(int(name) >> 3) == key:
                return int(held)
        return None

    def keys(self, value: int) -> list[str]:
        """Returns the text keys of a dict."""
        return [str(self.text(int(key) >> 3)) for key in self.list_items(value)[::2] if key & 7 == t.STR]

    def rows(self, values: Array, keys: Sequence[str]) -> tuple[dict[str, Array], set[str]]:
        """Reads dicts as a table.

        Args:
            values: Tagged values, each a dict.
            keys: Keys to read.

        Returns:
            A column of tagged values for each key (NONE_THERE where a row lacks it), and the other keys that occur.

        Raises:
            ValueError: A value is not a dict, or a dict has a key that is not text.
        """
        if not np.all(values & 7 == t.BOX):
            raise ValueError("a list of dicts holds something else")
        boxes = values >> 3
        if not np.all(self.box_kind[boxes] == t.DICT):
            raise ValueError("a list of dicts holds something else")
        columns = np.full((len(keys), len(boxes)), t.NONE_THERE, np.int64)
        column_of = np.full(len(self.string_at) + 1, -1, np.int32)
        for index, key in enumerate(keys):
            column_of[self.rows_of(key)] = index
        others = np.zeros(len(self.string_at) + 1, np.bool_)
        good = fill_table(boxes, column_of, self.canonical, self.boxes, columns, others)
        if not good:
            raise ValueError("a dict has a key that is no text")
        unknown = {str(self.text(int(row))) for row in np.flatnonzero(others)[:32]}
        return {key: columns[index] for index, key in enumerate(keys)}, unknown


def _decode(raw: bytes, coding: int) -> Any:
    if coding == t.UTF8:
        return raw.decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode("utf-8")
    if coding == t.RAW_ESCAPE:
        return raw.decode("raw-unicode-escape")
    if coding == t.LITTLE_ENDIAN:
        return int.from_bytes(raw[:64], "little", signed=True)
    if coding == t.DECIMAL:
        return int(raw[:64].rstrip(b"L"))
    if coding == t.FLOAT_TEXT:
        return float(raw[:64])
    if coding == t.QUOTED:
        return raw.strip(b"'\"").decode("latin-1")
    return raw


def read_tape(content: bytes | Path, name: str, entries: EntryRows | None = None) -> Tape:
    """Decodes a pickle piecewise.

    Args:
        content: The pickle, or the file that contains it. A large file is read twice.
        name: File name for messages.
        entries: Which dicts to store as rows, or None for none.

    Raises:
        RefusedFile: It requests anything but plain data (named in the message), or it is damaged.
        OSError: The file cannot be read.
    """
    fields = entries or described((), {}, ())
    window = _Window(_whole(content), name)
    counts = np.zeros(st.N_COUNTS, np.int64)
    window.run(False, counts, st.allocate(counts, window.fetched, fields))
    fetched = window.fetched[: counts[st.N_MEMO]]
    counts[st.N_FETCHED] = fetched.sum()
    needed = st.needed_bytes(counts)
    if needed > _TAPE_FLOOR + _TAPE_RATIO * window.num_bytes:
        what = f"{format_bytes(window.num_bytes)} of pickle would fill {format_bytes(needed)}"
        raise RefusedFile(phrase("errors.bomb", name=str(name), what=str(what)), phrase("errors.plain-only"))
    store = st.allocate(counts, fetched, fields)
    made = np.zeros(st.N_COUNTS, np.int64)
    root = window.run(True, made, store)
    return Tape(window.num_bytes, root, st.used(store, made))


def end_of_pickle(content: bytes, name: str) -> int:
    """Returns the number of bytes of the pickle with which ``content`` begins.

    Raises:
        RefusedFile: It requests anything but plain data, or it is damaged.
    """
    window = _Window(content, name)
    counts = np.zeros(st.N_COUNTS, np.int64)
    window.run(False, counts, st.allocate(counts, window.fetched, described((), {}, ())))
    return window.num_bytes


def _whole(content: bytes | Path) -> bytes | Path:
    """Returns the content of a small file, and a large file unchanged.

    The second run of the machine needs the same bytes as the first. To read a file again and to compare digests takes
    longer than the first run itself.
    """
    if isinstance(content, bytes):
        return content
    with content.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= _WHOLE:
            found = file.read(_WHOLE + 1)
            return found if len(found) <= _WHOLE else content
    return content


class _Window:
    """The part of a pickle that is being read; it moves through the file."""

    def __init__(self, content: bytes | Path, name: str) -> None:
        self._content = content
        self._name = name
        self.fetched = np.zeros(0, np.bool_)
        self._marks = np.empty(m.MOST_MARKS, np.int64)
        self._piece = _PIECE
        self._digests: list[bytes] = []  # of the pieces of a file during the first run
        self.num_bytes = 0

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Yields the file in pieces, and whether each is the last one."""
        if not isinstance(self._content, Path):
            yield self._content, True
            return
        with self._content.open("rb") as file:
            piece = file.read(self._piece)
            while True:
                following = file.read(self._piece)
                yield piece, not following
                if not following:
                    return
                piece = following

    def _compare(self, number: int, piece: bytes, *, is_first_run: bool) -> None:
        """Checks that a file is unchanged since the first run, whose counts determine the array sizes.

        Raises:
            RefusedFile: The file changed.
        """
        if not isinstance(self._content, Path):
            return
        digest = hashlib.sha256(piece).digest()
        if is_first_run:
            self._digests.append(digest)
        elif number >= len(self._digests) or self._digests[number] != digest:
            raise RefusedFile(phrase("errors.changed", name=str(self._name)), phrase("errors.changed.hint"))

    def run(self, build: bool, counts: Array, store: st.Store) -> int:
        """Runs the whole pickle; returns its root (0 if not ``build``)."""
        state = np.zeros(m.NUM_STATE, np.int64)
        self._piece = _PIECE
        buf = np.empty(0, np.uint8)
        before = 0  # bytes of the file before buf
        for number, (piece, is_last) in enumerate(self._pieces()):
            self._compare(number, piece, is_first_run=not build)
            done = max(int(state[m.POS]) - _BEHIND, 0)
            fresh = np.frombuffer(piece, np.uint8)
            buf = np.concatenate((buf[done:], fresh)) if len(buf) > done else fresh
            before += done
            state[m.POS] -= done
            self.num_bytes = before + len(buf)
            # a memo entry takes at least one byte; untouched pages take no memory
            if len(self.fetched) < self.num_bytes:
                longer = np.zeros(max(2 * len(self.fetched), self.num_bytes), np.bool_)
                longer[: counts[st.N_MEMO]] = self.fetched[: counts[st.N_MEMO]]
                self.fetched = longer
            started = int(state[m.POS])
            window = m.FileWindow(buf, len(buf), is_last, before)
            status = int(m.run(window, build, state, counts, self._marks, self.fetched, store))
            if status == m.OK:
                self.num_bytes = before + int(state[m.POS])
                return int(state[m.ROOT])
            self._piece = _PIECE if state[m.POS] > started else 2 * self._piece  # one value may be longer than a piece
            if status == m.FORBIDDEN and len(buf) - state[m.POS] < _BEHIND and not is_last:
                continue  # the requested name may not be in the window yet
            if status != m.TRUNCATED or is_last:
                raise _refusal(buf, self._name, status, int(state[m.POS]), before)
        raise AssertionError("the last piece ends a pickle")


def _refusal(buf: Array, name: str, status: int, pos: int, before: int) -> RefusedFile:
    at = before + pos
    if status == m.FORBIDDEN:
        opcode = FORBIDDEN_OPCODES[int(buf[pos])]
        target = _target(buf, pos, opcode)
        what = f"{opcode} {target}" if target else opcode
        return RefusedFile(
            phrase("errors.runs-code", name=str(name), what=str(what), at=f"{at:,}"), phrase("errors.plain-only")
        )
    if status == m.TRUNCATED:
        inside = f", inside a value that begins at byte {at:,}" if pos < len(buf) else ""
        what = f"{name}: the pickle is cut off: it ends after {before + len(buf):,} bytes{inside}"
        return RefusedFile(what, phrase("errors.stopped.hint"))
    if status == m.MEMO_BOMB:
        return RefusedFile(phrase("errors.bomb-memo", name=str(name), at=f"{at:,}"), phrase("errors.plain-only"))
    if status == m.TOO_DEEP:
        return RefusedFile(phrase("errors.bomb-lists", name=str(name), at=f"{at:,}"), phrase("errors.plain-only"))
    if at == 0:
        return RefusedFile(phrase("errors.no-pickle", name=str(name)), phrase("errors.plain-only"))
    reason = {
        m.UNKNOWN_OPCODE: "an unknown opcode",
        m.UNDERFLOW: "a value is missing on the stack",
        m.BAD_MEMO: "a memo entry that was never stored",
        m.WRONG_TYPE: "an item is added to something that cannot hold it",
        m.BAD_NUMBER: "a damaged number",
    }[status]
    return RefusedFile(
        phrase("errors.pickle", name=str(name), at=f"{at:,}", reason=str(reason)), phrase("errors.pickle.hint")
    )


def _target(buf: Array, pos: int, opcode: str) -> str:
    """Returns the name that a forbidden opcode requests, if the surrounding bytes show it."""
    if opcode in ("GLOBAL", "INST", "PERSID"):
        raw = bytes(buf[pos + 1 : pos + 512]).split(b"\n")[: 1 if opcode == "PERSID" else 2]
        return b".".join(raw).decode("latin-1")
    if opcode == "STACK_GLOBAL":
        # The two names directly precede it: \x8c LENGTH MODULE [\x94] \x8c LENGTH NAME [\x94].
        names: list[str] = []
        end = pos
        for _ in range(2):
            if end and buf[end - 1] == 0x94:
                end -= 1
            start = next(
                (s for s in range(end - 2, max(end - 257, -1), -1) if buf[s] == 0x8C and buf[s + 1] == end - s - 2),
                None,
            )
            if start is None:
                break
            names.insert(0, bytes(buf[start + 2 : end]).decode("utf-8", "replace"))
            end = start
        return ".".join(names)
    return ""
