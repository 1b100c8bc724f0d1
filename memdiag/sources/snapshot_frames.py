"""Stacks of a snapshot: lists of frame dicts on the tape, interned into numbers.

PyTorch shares frames and lists between entries, other writers repeat them. In both cases each distinct stack gets one
number.
"""

from __future__ import annotations

import numpy as np

from memdiag.sources.pickles import Tape
from memdiag.sources.pickles import tags as m
from memdiag.sources.pickles.kernels import intern_lists, mark_items
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array


class FrameReader:
    """Collects columns of frame lists (``ids``), then numbers all of them (``finish``, ``final``)."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._wanted = np.zeros(len(tape.box_kind), bool)
        self._number = np.empty(0, np.int32)

    def ids(self, values: Array) -> Array:
        """Returns the preliminary number of each frame list, its box (-1: none); ``final`` converts it."""
        boxes = np.where(values & 7 == m.BOX, values >> 3, -1).astype(np.int32)
        self.want(boxes)
        return boxes

    def want(self, boxes: Array) -> None:
        """Notes the boxes of the frame lists that are needed (-1: none)."""
        there = np.zeros(len(self._wanted) + 1, bool)
        there[boxes] = True  # index -1 is the last entry
        listed = np.flatnonzero(there[:-1])
        listed = listed[np.isin(self._tape.box_kind[listed], (m.LIST, m.TUPLE)) & (self._tape.box_size[listed] > 0)]
        self._wanted[listed] = True

    def finish(self) -> Stacks:
        """Interns all stacks noted so far.

        Raises:
            ValueError: A frame is not a dict.
        """
        tape = self._tape
        lists = np.flatnonzero(self._wanted)
        self._number = np.full(len(tape.box_kind) + 1, -1, np.int32)
        if not len(lists):
            return Stacks.empty()
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
        return Stacks(frames, offsets, flat)

    def final(self, boxes: Array) -> Array:
        """Returns the stack numbers (-1: none) for a result of ``ids``."""
        return np.asarray(self._number[boxes])

    def _frames(self, boxes: Array) -> tuple[list[Frame], Array]:
        tape = self._tape
        columns, _ = tape.rows(boxes << 3 | m.BOX, ("filename", "line", "name"))
        tagged = columns["line"]  # C++ frames with line numbers beyond 61 bits have been observed: treated as no line
        line = np.where((tagged & 7 == m.INT) & (tagged > 0) & (tagged >> 3 < 1 << 31), tagged >> 3, 0)
        texts = []
        for key in ("filename", "name"):
            is_text = columns[key] & 7 == m.STR
            texts.append(
                np.where(
                    is_text, tape.canonical[np.where(is_text, columns[key] >> 3, 0)] if len(tape.string_at) else 0, -1
                )
            )
        order = np.lexsort((line, texts[1], texts[0]))
        sorted_keys = np.stack([texts[0][order], texts[1][order], line[order]])
        new = np.ones(len(order), bool)
        new[1:] = (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)
        number = np.empty(len(order), np.int32)
        number[order] = np.cumsum(new) - 1
        first = sorted_keys[:, new]
        frames = [Frame(self._text(f), int(at), self._text(n)) for f, n, at in first.T]
        return frames, number

    def _text(self, row: int) -> str:
        return str(self._tape.text(int(row))) if row >= 0 else ""
