"""Call stacks for formats without stacks: the spans (operators, Python calls) that were open at each request.

Profilers write spans and memory events into the same file. Spans on one thread nest, so those open at a time form the
stack: at least an operator's name, and lines of code if Python calls were recorded.
"""

from __future__ import annotations

import re
from array import array

import numpy as np

from memdiag.sources.growing import ByteLimit, Columns, Names
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array

_DEEPEST = 128
_FRAME = 250  # bytes of a frame and its texts
# Operators that only allocate memory for the one around them; a stack named after them would be useless.
_ROOM = {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::resize_", "empty_tensor"}
_PYTHON = re.compile(r"(.{1,2000}?)\(([0-9]{1,9})\): (.{1,500})\Z", re.DOTALL)


def frame_of(name: str) -> Frame:
    """Returns the frame for a span's name: ``train.py(35): forward`` has a line, ``aten::mm`` does not."""
    match = _PYTHON.match(name)
    if match:
        return Frame(match.group(1), int(match.group(2)), match.group(3))
    return Frame("", 0, name)


def frames_of(text: str, separator: str) -> tuple[Frame, ...]:
    """Returns the frames of a stack given as text, which is ordered innermost first."""
    return tuple(frame_of(line.strip()) for line in text.split(separator) if line.strip())


class StackTable:
    """Collects distinct stacks; a stack is numbered on first use."""

    def __init__(self, budget: ByteLimit) -> None:
        self._rows: dict[tuple[Frame, ...], int] = {}
        self._budget = budget

    def number(self, frames: tuple[Frame, ...]) -> int:
        """Returns the number of a stack (innermost frame first); -1 for an empty one.

        Raises:
            RefusedFile: The budget is exhausted.
        """
        if not frames:
            return -1
        known = self._rows.get(frames)
        if known is None:
            self._budget.spend(_FRAME * len(frames))
            known = self._rows[frames] = len(self._rows)
        return known

    def __len__(self) -> int:
        return len(self._rows)

    def has_lines(self) -> bool:
        """Returns whether any frame is a Python line."""
        return any(frame.is_python for frames in self._rows for frame in frames)

    def finish(self) -> Stacks:
        """Returns the table of all stacks, in the order of their numbers."""
        return Stacks.from_lists(list(self._rows))[0]


class ThreadSpans:
    """Named spans of many threads.

    Args:
        stacks: Table that receives the stacks.
        budget: Memory limit.
    """

    def __init__(self, stacks: StackTable, budget: ByteLimit) -> None:
        self._stacks = stacks
        self._spans = Columns(("thread", "start", "end", "name"), budget)
        self._names = Names(budget)

    def add(self, thread: int, start: int, end: int, name: str, outer: str = "") -> None:
        """Adds a span (nanoseconds, both ends included).

        Args:
            outer: The stack around it as text, innermost first, separated by ``;``.
        """
        self._spans.add(thread, start, end, self._names.number(f"{name};{outer}" if outer else name))

    def stacks_at(self, thread: Array, time: Array) -> Array:
        """Returns the number of the stack at each of the given times (int32), or -1 if no span was open.

        Args:
            thread: Thread number for each time.
            time: Times in nanoseconds.
        """
        found = np.full(len(time), -1, np.int32)
        chains = _Chains([frames_of(text, ";") for text in self._names.list()], self._stacks)
        spans = self._spans.arrays()
        for number in np.intersect1d(spans["thread"], thread):
            rows = np.flatnonzero(spans["thread"] == number)
            rows = rows[np.lexsort((-spans["end"][rows], spans["start"][rows]))]
            moments = np.flatnonzero(thread == number)
            moments = moments[np.argsort(time[moments], kind="stable")]
            starts, ends, ids = (spans[name][rows].tolist() for name in ("start", "end", "name"))
            open_ends: list[int] = []
            open_nodes: list[int] = []
            at = 0
            for moment, now in zip(moments.tolist(), time[moments].tolist(), strict=True):
                while at < len(starts) and starts[at] <= now:
                    while open_ends and open_ends[-1] <= starts[at]:
                        open_ends.pop()
                        open_nodes.pop()
                    open_nodes.append(chains.node(open_nodes[-1] if open_nodes else -1, ids[at]))
                    open_ends.append(ends[at])
                    at += 1
                while open_ends and open_ends[-1] < now:
                    open_ends.pop()
                    open_nodes.pop()
                if open_nodes:
                    found[moment] = chains.stack(open_nodes[-1])
        return found


class _Chains:
    """Chains of nested spans, as a tree: each node is a name below its parent node."""

    def __init__(self, names: list[tuple[Frame, ...]], stacks: StackTable) -> None:
        self._names = names
        self._stacks = stacks
        self._nodes: dict[tuple[int, int], int] = {}
        self._parent, self._name = array("i"), array("i")
        self._number: dict[int, int] = {}

    def node(self, parent: int, name: int) -> int:
        """Returns the node of a span within another one (-1: top level)."""
        number = self._nodes.setdefault((parent, name), len(self._nodes))
        if number == len(self._parent):
            self._parent.append(parent)
            self._name.append(name)
        return number

    def stack(self, node: int) -> int:
        """Returns the number of a node's stack.

        It consists of all names, innermost first, and the lines recorded with the innermost span.
        """
        if node not in self._number:
            frames: list[Frame] = []
            lines: tuple[Frame, ...] = ()
            at = node
            while at >= 0 and len(frames) < _DEEPEST:
                own = self._names[self._name[at]]
                if own[0].name not in _ROOM or self._parent[at] < 0:
                    frames += own[:1]
                lines = lines or own[1:]
                at = self._parent[at]
            self._number[node] = self._stacks.number((*frames, *lines[:_DEEPEST]))
        return self._number[node]
