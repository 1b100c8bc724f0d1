"""Stacks of a snapshot: lists of frame dicts on the tape, interned into numbers.

PyTorch shares frames and lists between entries, other writers repeat them. In both cases each distinct stack gets one
number.
"""

from __future__ import annotations

import numpy as np

from memdiag.sources.pickles import Tape
from memdiag.sources.pickles import tags as m
from memdiag.sources.pickles.kernels import intern_lists, mark_items
from memdiag.trace.schema import FRAME
from memdiag.trace.snapshot_fields import fields_of
from memdiag.trace.stacks import Frame, FxNode, Stacks
from memdiag.trace.table import Array
from memdiag.trace.tracebacks import frames_in

_NODE = tuple(field.name for field in fields_of(FRAME) if field.name.startswith("fx_"))


class FrameReader:
    """Collects columns of frame lists (``ids``), then numbers all of them (``finish``, ``final``).

    Attributes:
        unknown: Keys of frames that are not read.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._wanted = np.zeros(len(tape.box_kind), bool)
        self._tracebacks = np.zeros(len(tape.box_kind), bool)
        self.unknown: set[str] = set()
        self._number = np.empty(0, np.int32)

    def ids(self, values: Array) -> Array:
        """Returns the preliminary number of each frame list, its box (-1: none); ``final`` converts it."""
        boxes = np.where(values & 7 == m.BOX, values >> 3, -1).astype(np.int32)
        self.want(boxes)
        return boxes

    def want(self, boxes: Array) -> None:
        """Notes the boxes of the frame lists that are needed (-1: none)."""
        self._wanted[self._lists(boxes)] = True

    def tracebacks(self, values: Array) -> Array:
        """Returns the preliminary number of each list of lines of a traceback, its box (-1: none)."""
        boxes = np.where(values & 7 == m.BOX, values >> 3, -1).astype(np.int32)
        self.want_tracebacks(boxes)
        return boxes

    def want_tracebacks(self, boxes: Array) -> None:
        """Notes the boxes of the lists of lines of tracebacks that are needed (-1: none)."""
        self._tracebacks[self._lists(boxes)] = True

    def _lists(self, boxes: Array) -> Array:
        """Returns the boxes that are lists with items."""
        there = np.zeros(len(self._wanted) + 1, bool)
        there[boxes] = True  # index -1 is the last entry
        listed = np.flatnonzero(there[:-1])
        kept = np.isin(self._tape.box_kind[listed], (m.LIST, m.TUPLE)) & (self._tape.box_size[listed] > 0)
        return np.asarray(listed[kept])

    def finish(self) -> Stacks:
        """Interns all stacks noted so far.

        Raises:
            ValueError: A frame is not a dict.
        """
        tape = self._tape
        lists = np.flatnonzero(self._wanted)
        self._number = np.full(len(tape.box_kind) + 1, -1, np.int32)
        if not len(lists):
            return self._with_tracebacks(Stacks.empty())
        seen = np.zeros(len(tape.box_kind), bool)
        if not mark_items(lists, tape.boxes, seen):
            raise ValueError("a stack holds something that is no frame")
        boxes = np.flatnonzero(seen)
        frames, number = self._frames(boxes)
        frame_of = np.full(len(tape.box_kind), -1, np.int32)
        frame_of[boxes] = number
        ids, offsets, flat = intern_lists(
            lists,
            frame_of,
            tape.items,
            tape.box_first,
            tape.box_size,
            tape.chunk_start,
            tape.chunk_size,
            tape.chunk_next,
        )
        self._number[lists] = ids
        return self._with_tracebacks(Stacks(frames, offsets, flat))

    def _with_tracebacks(self, stacks: Stacks) -> Stacks:
        """Returns the table with the stacks in lists of lines of tracebacks added."""
        tape, boxes = self._tape, np.flatnonzero(self._tracebacks)
        if not len(boxes):
            return stacks
        frames: dict[Frame, int] = {}
        known: dict[tuple[int, ...], int] = {}
        of_text: dict[int, tuple[Frame, ...]] = {}
        for box in boxes.tolist():
            ids: list[int] = []
            for item in tape.list_items(box << 3 | m.BOX)[::-1].tolist():
                row = int(tape.canonical[item >> 3]) if item & 7 == m.STR else -1
                if row >= 0 and row not in of_text:
                    of_text[row] = tuple(Frame(*frame) for frame in frames_in(str(tape.text(row))))
                ids += [frames.setdefault(frame, len(frames)) for frame in of_text.get(row, ())]
            if ids:
                self._number[box] = len(stacks) + known.setdefault(tuple(ids), len(known))
        lengths = np.cumsum([len(ids) for ids in known], dtype=np.int64)
        flat = np.array([frame for ids in known for frame in ids], np.int32) + len(stacks.frames)
        return Stacks(
            (*stacks.frames, *frames),
            np.concatenate((stacks.offsets, stacks.offsets[-1] + lengths)),
            np.concatenate((stacks.frame_ids, flat.astype(np.int32))),
        )

    def final(self, boxes: Array) -> Array:
        """Returns the stack numbers (-1: none) for a result of ``ids``."""
        return np.asarray(self._number[boxes])

    def _frames(self, boxes: Array) -> tuple[list[Frame], Array]:
        tape = self._tape
        columns, self.unknown = tape.rows(boxes << 3 | m.BOX, [field.name for field in fields_of(FRAME)])
        tagged = columns["line"]  # C++ frames with line numbers beyond 61 bits have been observed: treated as no line
        line = np.where((tagged & 7 == m.INT) & (tagged > 0) & (tagged >> 3 < 1 << 31), tagged >> 3, 0)
        texts = [self._rows(columns[key]) for key in ("filename", "name", *_NODE)]
        has_nodes = any((column >= 0).any() for column in texts[2:])
        keys = np.stack([*texts[:2], line, *(texts[2:] if has_nodes else ())])
        order = np.lexsort(keys[::-1])
        sorted_keys = keys[:, order]
        new = np.ones(len(order), bool)
        new[1:] = (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)
        number = np.empty(len(order), np.int32)
        number[order] = np.cumsum(new) - 1
        first = sorted_keys[:, new]
        frames = [Frame(self._text(f), int(at), self._text(n), self._node(node)) for f, n, at, *node in first.T]
        return frames, number

    def _rows(self, values: Array) -> Array:
        """Returns the canonical string row of each value, -1 if it is no text."""
        is_text = values & 7 == m.STR
        if not len(self._tape.string_at):
            return np.full(len(values), -1)
        return np.where(is_text, self._tape.canonical[np.where(is_text, values >> 3, 0)], -1)

    def _node(self, rows: list[int]) -> FxNode | None:
        return FxNode(*(self._text(row) for row in rows)) if any(row >= 0 for row in rows) else None

    def _text(self, row: int) -> str:
        return str(self._tape.text(int(row))) if row >= 0 else ""
