"""Bytes at a moment as a call tree, from the program's first line inwards or, inverted, from the allocation outwards.

Only the open part is computed: a node is a set of stacks with the same beginning, and its children are their next
frames.
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
NO_STACK = -1  # instead of a frame: these tensors have none
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A call.

    Attributes:
        path: Frames (indices into ``Stacks.frames``) from the root; ``NO_STACK`` stands for tensors without a stack.
        bytes: Bytes of the blocks that were requested within it.
        num_tensors: Number of these blocks.
        indent: Number of calls above it that have siblings: a chain of only children is not indented.
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
    """The tree of one device. It keeps the open nodes when the moment changes."""

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
        """Sets the tensors (rows of Tensors) whose bytes are shown: all those of a moment, or some of them."""
        tensors = self._device.tensors
        stack, size = tensors.stack[rows] + 1, tensors.block_bytes[rows]
        num = len(self._trace.stacks) + 1
        held = np.bincount(stack, size, num).astype(np.int64)
        self._weights = held, np.bincount(stack, minlength=num)
        self.total_bytes = int(held.sum())
        self._children.cache_clear()

    def arrange(self, *, inverted: bool | None = None, frames: Frames | None = None) -> None:
        """Inverts the tree, or selects its frames; all nodes are closed then."""
        self.inverted = self.inverted if inverted is None else inverted
        self.frames = self.frames if frames is None else frames
        self._open.clear()
        self._children.cache_clear()

    def toggle(self, path: _Path) -> None:
        """Opens or closes a call; opening continues while there is only one child."""
        if path in self._open:
            self._open.discard(path)
        else:
            self.open_chain(path)

    def open_chain(self, path: _Path, *, share: float = 1.0) -> None:
        """Opens a call, and recursively the child with at least ``share`` of its bytes."""
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
        """Returns the visible calls, from the top."""
        return list(self._walk((), 0))

    def _walk(self, path: _Path, indent: int) -> Iterator[Node]:
        # An explicit stack: chains are thousands of calls deep in recursive programs.
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
        """Returns the node of all tensors without a stack, if there are any."""
        held, count = self._weights
        offsets, _ = self._flat(self.frames, self.inverted)
        none = np.append(True, np.diff(offsets) == 0)
        num = int(count[none].sum())
        return (Node((NO_STACK,), int(held[none].sum()), num, 0, opens=False, is_open=False),) if num else ()

    def _stacks_of(self, path: _Path) -> Array:
        """Returns the stacks with bytes that begin with ``path``."""
        stacks = np.flatnonzero(self._weights[1][1:])
        if path and path[0] == NO_STACK:
            return stacks[:0]
        offsets, frames = self._flat(self.frames, self.inverted)
        for depth, frame in enumerate(path):
            stacks = stacks[(offsets[1:] - offsets[:-1])[stacks] > depth]
            stacks = stacks[frames[offsets[stacks] + depth] == frame]
        return stacks

    def _chosen(self, which: Frames, inverted: bool) -> tuple[Array, Array]:
        """Returns all stacks with only the selected frames: offsets and frames, in the direction of the tree."""
        stacks = self._trace.stacks
        ids, offsets = stacks.frame_ids, stacks.offsets
        keep = np.ones(len(ids), bool)
        if which != "all":
            wanted = np.array([frame.is_user if which == "user" else frame.is_python for frame in stacks.frames], bool)
            keep = wanted[ids] if len(ids) else keep
            rows = np.repeat(np.arange(len(stacks)), np.diff(offsets))
            # A stack without any such frame would vanish, so it keeps its frames.
            has_one = np.bincount(rows[keep], minlength=len(stacks)) > 0
            keep |= ~has_one[rows]
        count = np.concatenate(([0], np.cumsum(keep)))
        kept = count[offsets]
        flat = ids[keep]
        if not inverted:  # frames are ordered innermost first
            lengths = np.diff(kept)
            start = np.repeat(kept[:-1], lengths)
            flat = flat[start + np.repeat(lengths, lengths) - 1 - (np.arange(len(flat)) - start)]
        return kept, flat
