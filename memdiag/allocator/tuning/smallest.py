"""Finds the smallest card on which a run succeeds, by bisection over replays."""

from __future__ import annotations

from collections.abc import Callable

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.units import MIB

GRAIN = 2 * MIB  # bytes of a page of device memory


def smallest_capacity(run: Callable[[int | None], Replay], others_bytes: int) -> int | None:
    """Returns the size of the smallest device without a failed request, in whole pages of 2 MiB; None: there is none.

    Args:
        run: Replays on a device of a given number of bytes; None: unlimited.
        others_bytes: Upper bound of the memory of other processes.

    The search assumes that a larger card is never worse than a smaller one. Garbage collection and oversize blocks may
    cause exceptions. The result is a size on which the run succeeds, although it fails on the next smaller size.
    """
    free = run(None)
    if not _goes_through(free):
        return None
    # Live tensors are a lower bound; the peak of an unlimited run is always enough, because it refuses no request.
    low = int(free.active.max(initial=0)) // GRAIN
    high = -(-(int(free.reserved.max(initial=0)) + others_bytes) // GRAIN)
    low = min(low + others_bytes // GRAIN, high) - 1
    while not _goes_through(run(high * GRAIN)):  # a fraction leaves less than the card
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _goes_through(run(middle * GRAIN)):
            high = middle
        else:
            low = middle
    return high * GRAIN


def _goes_through(replay: Replay) -> bool:
    return not bool(((replay.status == OUT_OF_MEMORY) | (replay.status == UNDEFINED)).any())
