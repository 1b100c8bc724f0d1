"""The inputs and results of the planner."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.trace.table import Array


@dataclass(frozen=True)
class Plan:
    """One placement of all buffers. Bytes are int64, multiples of ``align`` where they are places.

    Attributes:
        offsets: Where each buffer lies, from 0, in the order in which they were given.
        height_bytes: Bytes that the placement needs: the highest end of a buffer, rounded up to ``align``.
        load_bytes: The most bytes live at one moment, each size rounded up to ``align``: no placement needs less.
        bound_bytes: What was proved to be needed: the load, or more where the search went through all that is lower.
        align: Every offset is a multiple of this.
        seconds: How long it took.
        method: What found it: ``trivial``, ``first fit``, ``online``, ``search`` …
        ended: Why the search ended: "load" (no plan is lower), "capacity" (it fits, which was what was asked for), "proved" (no plan is
            lower, although the load is), "effort" (all that was to be tried has been), or "time". All but "time" give the same plan
            every time.
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
        """Height over load; 1.0 where nothing lives."""
        return self.height_bytes / self.load_bytes if self.load_bytes else 1.0


@dataclass(frozen=True)
class Partition:
    """Buffers that share no section with any others, except with those below all of them.

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
    def bound(self) -> int:
        """Units that no placement of this partition is below, without the base."""
        return int(self.total.max(initial=0))

    @property
    def num_sections(self) -> int:
        """How many sections there are."""
        return len(self.total)


@dataclass
class Solution:
    """The best placement of a partition so far.

    Attributes:
        offsets: Per buffer of the partition, in units, without the base.
        height: Of these.
        method: What found it.
        bound: Units proved to be needed.
        exhausted: Nothing is left to be tried.
    """

    offsets: Array = field(default_factory=lambda: np.empty(0, np.int64))
    height: int = 0
    method: str = ""
    bound: int = 0
    exhausted: bool = False
