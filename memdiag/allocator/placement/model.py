"""The inputs and results of the planner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from memdiag.trace.table import Array


class Lifespans(NamedTuple):
    """Buffers by lifetime, for compiled functions: each is live in [lower, upper) and has a size in units (int64)."""

    lower: Array
    upper: Array
    size: Array


@dataclass(frozen=True)
class SearchLimits:
    """How long the planner searches.

    Attributes:
        seconds: Time limit (some plan is always found); None: no limit.
        seed: Random seed.
        rounds: Rounds of search for each partition, at most; None: as the time allows. With ``seconds`` None, the plan
            is the same on any machine.
    """

    seconds: float | None = 10.0
    seed: int = 0
    rounds: int | None = None


DEFAULT_LIMITS = SearchLimits()


@dataclass(frozen=True)
class Plan:
    """One placement of all buffers. Bytes are int64; offsets and heights are multiples of ``align``.

    Attributes:
        offsets: Offset of each buffer, in the given order.
        height_bytes: Bytes that the placement needs: the highest end of a buffer, rounded up to ``align``.
        load_bytes: The most bytes live at one moment, each size rounded up to ``align``: no placement needs less.
        bound_bytes: What was proved to be needed: the load, or more where the search went through all that is lower.
        align: Every offset is a multiple of this.
        seconds: How long it took.
        method: What found it: ``trivial``, ``first fit``, ``online``, ``search`` …
        ended: Why the search ended: "load" (no plan is lower), "capacity" (the plan fits, as requested), "proved" (no
            plan is lower, although the load is), "effort" (everything was tried), or "time". All but "time" give the
            same plan every time.
    """

    offsets: Array
    height_bytes: int
    load_bytes: int
    bound_bytes: int
    align: int
    seconds: float
    method: str
    ended: str

    @property
    def ratio(self) -> float:
        """Height divided by load; 1.0 if the load is 0."""
        return self.height_bytes / self.load_bytes if self.load_bytes else 1.0


@dataclass(frozen=True)
class Partition:
    """Buffers that share no section with other buffers, except with those below the whole partition.

    Attributes:
        buffer_idxs: Rows of the whole problem.
        base: Units below the partition that are always occupied.
        lower, upper: Per buffer: the sections in which it is live, ``lower <= section < upper`` (int64). The live
            buffers do not change within a section. A section is dropped if another has all of its live buffers.
        size: Per buffer: units (int64, above 0).
        total: Per section: units live (int64).
    """

    buffer_idxs: Array
    base: int
    lower: Array
    upper: Array
    size: Array
    total: Array

    @property
    def spans(self) -> Lifespans:
        """The buffers, for compiled functions."""
        return Lifespans(self.lower, self.upper, self.size)

    @property
    def bound(self) -> int:
        """Lower bound of the height of this partition in units, without the base."""
        return int(self.total.max(initial=0))

    @property
    def num_sections(self) -> int:
        """Number of sections."""
        return len(self.total)


@dataclass
class Solution:
    """The best placement of a partition so far.

    Attributes:
        offsets: Per buffer of the partition, in units, without the base.
        height: Height of the placement, in units.
        method: The method that found it.
        bound: Proven lower bound of the height.
        exhausted: Whether every planned attempt was made.
    """

    offsets: Array = field(default_factory=lambda: np.empty(0, np.int64))
    height: int = 0
    method: str = ""
    bound: int = 0
    exhausted: bool = False
