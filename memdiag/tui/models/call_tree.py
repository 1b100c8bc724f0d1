"""Bytes there at a moment as a tree of calls, from the program's first line inwards or, inverted, from the allocation outwards.

Only what is open is worked out: a node is a set of stacks that begin alike, and its children are the next frames of
these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

Frames = Literal["python", "user", "all"]
FRAMES: tuple[Frames, ...] = ("user", "python", "all")
NO_STACK = -1  # in place of a frame: these tensors have none
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A call.

    Attributes:
        path: Frames (numbers of ``Stacks.frames``) from the root to this; ``NO_STACK`` stands for those without a
            stack.
        bytes: Of the blocks that were asked for within it.
        num_tensors: How many these are.
        indent: How many of the calls above it have brothers: a chain of only children does not move to the right.
        opens: Whether it has children.
        is_open: Whether they are shown.
    """

    path: _Path
    bytes: int
    num_tensors: int
    indent: int
    opens: bool
    is_open: bool


class CallTree:
    """The tree of one device. It remembers what is open while the moment changes."""

    def __init__(self, trace: Trace, device: DeviceTrace) -> None:
        self._trace = trace
        self._device = device
        self._flat = lru_cache(8)(self._chosen)
        self._weights: tuple[Array, Array] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._open: set[_Path] = set()
        self._children = lru_cache(4096)(self._children_of)
        self.inverted = False
        self.frames: Frames = FRAMES[0]
        self.total_bytes = 0

    def weigh(self, rows: Array) -> None:
        """Takes the bytes of these tensors (rows of Tensors): those there at another moment, or some of them."""
        tensors = self._device.tensors
        stack, size = tensors.stack[rows] + 1, tensors.block_bytes[rows]
        num = len(self._trace.stacks) + 1
        held = np.bincount(stack, size, num).astype(np.int64)
        self._weights = held, np.bincount(stack, minlength=num)
        self.total_bytes = int(held.sum())
        self._children.cache_clear()

    def arrange(self, *, inverted: bool | None = None, frames: Frames | None = None) -> None:
        """Turns the tree about, or chooses which frames it is made of; all is closed then."""
        self.inverted = self.inverted if inverted is None else inverted
        self.frames = self.frames if frames is None else frames
        self._open.clear()
        self._children.cache_clear()

    def toggle(self, path: _Path) -> None:
        """Opens or closes a call; opening goes on while there is one child only."""
        if path in self._open:
            self._open.discard(path)
        else:
            self.open_chain(path)

    def open_chain(self, path: _Path, *, share: float = 1.0) -> None:
        """Opens a call, and within it the child with at least ``share`` of its bytes, and so on."""
        while children := self._children(path):
            self._open.add(path)
            best = children[0]
            if best.bytes < share * sum(child.bytes for child in children):
                return
            path = best.path

    def close(self, path: _Path) -> bool:
        """Closes a call; returns whether it was open."""
        was = path in self._open
        self._open.discard(path)
        return was

    def close_all(self) -> None:
        """Closes all."""
        self._open.clear()

    def shown(self) -> list[Node]:
        """Returns the calls that are shown, from the top."""
        return list(self._walk((), 0))

    def _walk(self, path: _Path, indent: int) -> Iterator[Node]:
        # A stack of our own: chains are thousands of calls deep where a program recurses.
        waiting = [(child, indent) for child in reversed(self._children(path))]
        while waiting:
            found, indent = waiting.pop()
            is_open = found.path in self._open
            yield Node(found.path, found.bytes, found.num_tensors, indent, found.opens, is_open)
            if is_open:
                children = self._children(found.path)
                waiting += [(child, indent + (len(children) > 1)) for child in reversed(children)]

    def _children_of(self, path: _Path) -> tuple[Node, ...]:
        stacks = self._stacks_of(path)
        offsets, frames = self._flat(self.frames, self.inverted)
        depth = len(path)
        length = (offsets[1:] - offsets[:-1])[stacks]
        stacks = stacks[length > depth]
        if not len(stacks):
            return self._silent() if not path else ()
        frame = frames[offsets[stacks] + depth]
        distinct, index = np.unique(frame, return_inverse=True)
        held, count = self._weights
        size = np.bincount(index, held[stacks + 1], len(distinct)).astype(np.int64)
        num = np.bincount(index, count[stacks + 1], len(distinct)).astype(np.int64)
        deeper = np.bincount(index, length[length > depth] > depth + 1, len(distinct)) > 0
        nodes = [
            Node((*path, int(distinct[i])), int(size[i]), int(num[i]), 0, bool(deeper[i]), is_open=False)
            for i in np.lexsort((distinct, -size))
        ]
        return tuple(sorted((*nodes, *self._silent()), key=lambda node: -node.bytes)) if not path else tuple(nodes)

    def _silent(self) -> tuple[Node, ...]:
        """The node of all tensors without a stack, if there are any."""
        held, count = self._weights
        offsets, _ = self._flat(self.frames, self.inverted)
        none = np.append(True, np.diff(offsets) == 0)
        num = int(count[none].sum())
        return (Node((NO_STACK,), int(held[none].sum()), num, 0, opens=False, is_open=False),) if num else ()

    def _stacks_of(self, path: _Path) -> Array:
        """Returns the stacks that hold anything and begin with ``path``."""
        stacks = np.flatnonzero(self._weights[1][1:])
        if path and path[0] == NO_STACK:
            return stacks[:0]
        offsets, frames = self._flat(self.frames, self.inverted)
        for depth, frame in enumerate(path):
            stacks = stacks[(offsets[1:] - offsets[:-1])[stacks] > depth]
            stacks = stacks[frames[offsets[stacks] + depth] == frame]
        return stacks

    def _chosen(self, which: Frames, inverted: bool) -> tuple[Array, Array]:
        """Returns all stacks with only the chosen frames: offsets and frames, in the order in which the tree goes."""
        stacks = self._trace.stacks
        ids, offsets = stacks.frame_ids, stacks.offsets
        keep = np.ones(len(ids), bool)
        if which != "all":
            wanted = np.array([frame.is_user if which == "user" else frame.is_python for frame in stacks.frames], bool)
            keep = wanted[ids] if len(ids) else keep
            rows = np.repeat(np.arange(len(stacks)), np.diff(offsets))
            # A stack without any such frame would vanish: it keeps what it has.
            has_one = np.bincount(rows[keep], minlength=len(stacks)) > 0
            keep |= ~has_one[rows]
        count = np.concatenate(([0], np.cumsum(keep)))
        kept = count[offsets]
        flat = ids[keep]
        if not inverted:  # frames stand innermost first
            lengths = np.diff(kept)
            start = np.repeat(kept[:-1], lengths)
            flat = flat[start + np.repeat(lengths, lengths) - 1 - (np.arange(len(flat)) - start)]
        return kept, flat
