"""The smallest card on which a run goes through, by bisection over replays."""

from __future__ import annotations

from collections.abc import Callable

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.units import MIB

GRAIN = 2 * MIB  # drivers give memory in such pages


def smallest_capacity(run: Callable[[int | None], Replay], others_bytes: int) -> int | None:
    """Returns the bytes of the smallest device on which no request fails, in whole pages of 2 MiB; None: some fail on any.

    Args:
        run: Replays on a device of so many bytes; None: unlimited.
        others_bytes: What others hold of the device at most.

    A larger card is taken to be no worse than a smaller one. With garbage collection and oversize blocks there may be exceptions; the
    answer is a size on which the run goes through, and just below which it does not.
    """
    free = run(None)
    if not _goes_through(free):
        return None
    # Live tensors are a lower bound; the peak of an unlimited run is always enough, because it refuses no request.
    low = int(free.active.max(initial=0)) // GRAIN
    high = -(-(int(free.reserved.max(initial=0)) + others_bytes) // GRAIN)
    low = min(low + others_bytes // GRAIN, high) - 1
    while not _goes_through(run(high * GRAIN)):  # a limit that is a share of the card leaves less than the whole
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
