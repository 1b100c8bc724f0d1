"""A plan made of one training step, used for another: how much of it holds, and what that costs.

The plan covers what is born and dies within the step. At run time each request of a step gets the place of a request of the planned one:
the unused one nearest to where it goes on that asked for as much, if nothing that still lives is in the way there. All others fall back to
a best fit beside the plan, and what outlives a step is held besides. This is how planners for training (STAlloc and its kin) work, without
their pools.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from memdiag.allocator.plan.api import plan
from memdiag.allocator.plan.firstfit import online
from memdiag.allocator.plan.sections import load_of
from memdiag.trace.table import Array

AHEAD = 64  # requests that a step may be out of step with the plan


@dataclass(frozen=True)
class Repeated:
    """How a plan of one step did in another.

    Attributes:
        num_requests, num_fallbacks: Requests of the other step that die within it; those of them that the plan could not serve.
        requested_bytes, fallback_bytes: Sums of these.
        plan_bytes: Height of the plan.
        beside_bytes: What the fallback held at most.
        resident_bytes: Most bytes of what outlives the step, or was there before.
        load_bytes: Most bytes live at one moment of the step, all included.
    """

    num_requests: int
    num_fallbacks: int
    requested_bytes: int
    fallback_bytes: int
    plan_bytes: int
    beside_bytes: int
    resident_bytes: int
    load_bytes: int

    @property
    def reserved_bytes(self) -> int:
        """All that has to be held."""
        return self.plan_bytes + self.beside_bytes + self.resident_bytes

    @property
    def fallback_share(self) -> float:
        """Of requests."""
        return self.num_fallbacks / self.num_requests if self.num_requests else 0.0


def repeat(
    sizes: Array, born: Array, died: Array, step: Array, planned: int, replayed: int, *, align: int = 512, seconds: float = 10.0
) -> Repeated:  # fmt: skip
    """Plans one step and replays another through the plan.

    Args:
        sizes: Bytes of each tensor (int64).
        born, died: Its lifetime [born, died), in events; rows in any order.
        step: The step that it was born in.
        planned, replayed: Two steps.
        align: Bytes; sizes are rounded up to it.
        seconds: For the plan.
    """
    size = -(-sizes // align) * align
    rows, other = (_within(born, died, step, number) for number in (planned, replayed))
    made = plan(size[rows], born[rows], died[rows], align, seconds=seconds)
    served = _served(size[rows], made.offsets, size[other], born[other], died[other])
    beside = other[~served]
    begin, end = _span(born, step, replayed)
    present = (born < end) & (died > begin)
    lower, upper = np.maximum(born, begin), np.minimum(died, end)
    resident = present.copy()
    resident[other] = False
    return Repeated(
        num_requests=len(other),
        num_fallbacks=len(beside),
        requested_bytes=int(size[other].sum()),
        fallback_bytes=int(size[beside].sum()),
        plan_bytes=made.height_bytes,
        beside_bytes=online(born[beside], died[beside], size[beside], tightest=True)[1] if len(beside) else 0,
        resident_bytes=load_of(size[resident], lower[resident], upper[resident]),
        load_bytes=load_of(size[present], lower[present], upper[present]),
    )


def _span(born: Array, step: Array, number: int) -> tuple[int, int]:
    """The events from the first birth of a step to the first of the next."""
    inside, after = born[step == number], born[step > number]
    begin = int(inside.min()) if len(inside) else 0
    return begin, int(after.min()) if len(after) else int(np.iinfo(np.int64).max)


def _within(born: Array, died: Array, step: Array, number: int) -> Array:
    """Rows of what is born in a step and dies before the next, in order of birth."""
    rows = np.flatnonzero((step == number) & (born < died) & (died <= _span(born, step, number)[1]))
    return rows[np.argsort(born[rows], kind="stable")]


def _served(slot_size: Array, slot_at: Array, size: Array, born: Array, died: Array) -> Array:
    """Which requests of a step, in order, get the place that the plan has for them."""
    served = np.zeros(len(size), bool)
    slots, offsets, wanted, ends = slot_size.tolist(), slot_at.tolist(), size.tolist(), died.tolist()
    live: list[tuple[int, int, int]] = []  # offset, end in bytes, death
    used: set[int] = set()
    following = 0
    for k, time in enumerate(born.tolist()):
        near = (following + way * far for far in range(AHEAD) for way in ((1, -1) if far else (1,)))
        slot = next((s for s in near if 0 <= s < len(slots) and s not in used and slots[s] == wanted[k]), None)
        if slot is None:
            continue
        used.add(slot)
        following = slot + 1
        low, high = offsets[slot], offsets[slot] + wanted[k]
        at = max(bisect_left(live, (low, 0, 0)) - 1, 0)
        free = True
        while at < len(live) and live[at][0] < high:
            if live[at][2] <= time:
                del live[at]
                continue
            free = free and live[at][1] <= low
            at += 1
        if free:
            served[k] = True
            insort(live, (low, high, ends[k]))
    return served
