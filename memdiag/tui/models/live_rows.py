"""The tensors live at a moment, in any order, filtered by a text: hundreds of thousands at once.

Names, call sites and categories repeat, so a text is searched in each distinct one, and rows are compared as numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.trace.table import Array
from memdiag.tui.models.at_cursor import there
from memdiag.units import parse_bytes

ORDERS: tuple[str, ...] = ("bytes", "requested", "name", "category", "lifetime", "age", "place")
_LARGEST_FIRST = {"bytes", "requested"}
_SIZE = re.compile(r"([<>])(=?)(\d[\d.]*[a-zA-Z]*)")
_KEPT_SEARCHES = 64


@dataclass(frozen=True)
class Live:
    """Tensors live at a moment.

    Attributes:
        rows: Rows of Tensors, in order.
        bytes: Total bytes of their blocks.
        num_all: Number of live tensors, including those that the filter excludes.
        bytes_of_all: Bytes of all their blocks.
    """

    rows: Array
    bytes: int
    num_all: int
    bytes_of_all: int


class LiveRows:
    """Answers for one device; everything independent of the moment is computed once."""

    def __init__(self, trace: Trace, device: DeviceTrace) -> None:
        self._trace = trace
        self._device = device
        self._search = lru_cache(_KEPT_SEARCHES)(self._hits)

    def at(self, at: int, text: str = "", order: str = "bytes", *, backwards: bool = False) -> Live:
        """Returns the tensors live after event ``at`` (-1: before the first), including those waiting for a stream.

        Args:
            at: The moment.
            text: Words that must all occur, each in the name, in any frame of the stack, in the category or in the
                lifetime; ``>64MiB`` and ``<1KiB`` filter by block size. Case is ignored.
            order: One of ``ORDERS``; sizes begin with the largest, ages with the oldest, words with A.
            backwards: Whether to reverse the order.
        """
        tensors = self._device.tensors
        present = there(self._device, at)
        rows = present
        for word in text.lower().split():
            rows = rows[self._asked(word, rows)]
        return Live(
            rows[self._order(rows, order, backwards=backwards)],
            int(tensors.block_bytes[rows].sum()),
            len(present),
            int(tensors.block_bytes[present].sum()),
        )

    @lru_cache(4096)  # noqa: B019 - one of these lives as long as the program that shows it
    def place(self, row: int) -> str:
        """Returns the line of code that allocated a tensor, or "" if unknown."""
        return self._trace.stacks.label(int(self._device.tensors.stack[row]))

    def name(self, row: int) -> str:
        """Returns the name of a tensor, or "" if unknown."""
        number = int(self._device.tensors.name[row])
        return self._trace.strings[number] if number >= 0 else ""

    @cached_property
    def has_names(self) -> bool:
        """True if any tensor has a name."""
        return bool((self._device.tensors.name >= 0).any())

    def _asked(self, word: str, rows: Array) -> Array:
        tensors = self._device.tensors
        if (limit := _limit(word)) is not None:
            above, equal, size = limit
            held = tensors.block_bytes[rows]
            return np.asarray((held == size) & equal | (held > size if above else held < size))
        names, stacks, categories, lifetimes = self._search(word)
        # The last entry of each is for -1: no name, no stack.
        return np.asarray(
            names[tensors.name[rows]]
            | stacks[tensors.stack[rows]]
            | categories[tensors.category[rows]]
            | lifetimes[tensors.lifetime[rows]]
        )

    def _hits(self, word: str) -> tuple[Array, Array, Array, Array]:
        """Returns, for each name, stack, category and lifetime, whether it contains the word."""
        stacks = self._trace.stacks
        frames = np.array([word in text for text in self._frames], bool)
        return (
            np.array([*(word in text for text in self._names), False], bool),
            np.append(stacks.with_frame(frames), False),
            np.array([word in name.replace("_", " ") or word in name for name in CATEGORIES], bool),
            np.array([word in name.replace("_", " ") or word in name for name in LIFETIMES], bool),
        )

    @cached_property
    def _names(self) -> list[str]:
        return [text.lower() for text in self._trace.strings]

    @cached_property
    def _frames(self) -> list[str]:
        return [str(frame).lower() for frame in self._trace.stacks.frames]

    @cached_property
    def _rank_of_name(self) -> Array:
        return _ranks(self._trace.strings)

    @cached_property
    def _rank_of_place(self) -> Array:
        stacks = self._trace.stacks
        return _ranks([stacks.label(stack) for stack in range(len(stacks))])

    def _order(self, rows: Array, order: str, *, backwards: bool) -> Array:
        tensors = self._device.tensors
        if order == "name":
            key = self._rank_of_name[tensors.name[rows]]
        elif order == "place":
            key = self._rank_of_place[tensors.stack[rows]]
        else:
            column = {"bytes": "block_bytes", "requested": "requested_bytes", "age": "alloc_at"}.get(order, order)
            key = tensors[column][rows].astype(np.int64)
        if (order in _LARGEST_FIRST) is not backwards:
            key = -key
        if order in _LARGEST_FIRST:
            return np.argsort(key, kind="stable")
        return np.lexsort((-tensors.block_bytes[rows], key))  # among equals, the largest first


def _ranks(texts: list[str] | tuple[str, ...]) -> Array:
    """Returns the alphabetical rank of each text, and one more at the end for -1, after all others."""
    place = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.array([*(place[text] for text in texts), len(place)], np.int64)


def _limit(word: str) -> tuple[bool, bool, int] | None:
    """Returns the meaning of ``>64MiB``: above, or equal, bytes; None if it is an ordinary word."""
    if (found := _SIZE.fullmatch(word)) is None:
        return None
    try:
        return found[1] == ">", bool(found[2]), parse_bytes(found[3])
    except (MemdiagError, ValueError):
        return None
