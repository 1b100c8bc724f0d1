"""What the planner works on, and what it gives."""

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
class Part:
    """Buffers that share no moment with any others, but for those that lie below all of them.

    Attributes:
        members: Rows of the whole.
        base: Units below them that are taken all the time.
        first, last: Per member: the sections that it lives in, ``first <= s < last`` (int64). In a section, the live buffers do not
            change; one that is contained in another is left out.
        size: Per member: units (int64, above 0).
        load: Per section: units live (int64).
    """

    members: Array
    base: int
    first: Array
    last: Array
    size: Array
    load: Array

    @property
    def bound(self) -> int:
        """Units that no placement of this part is below of, without the base."""
        return int(self.load.max(initial=0))

    @property
    def num_sections(self) -> int:
        """How many sections there are."""
        return len(self.load)


@dataclass
class Answer:
    """The best placement of a part so far.

    Attributes:
        offsets: Per member, in units, without the base.
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
