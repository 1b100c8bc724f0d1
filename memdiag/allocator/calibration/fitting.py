"""Finds the limit of a process if it was not recorded: the limit under which the replay matches longest.

With too low a limit, a replay collects garbage, retries or fails where the recording did not. With too high a limit,
the recording did so and the replay does not. The first difference therefore shows on which side the limit is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memdiag.allocator.calibration.comparing import ReplayComparison
from memdiag.allocator.calibration.limits import Limits
from memdiag.trace.schema import SEGMENT_FREE, SEGMENT_UNMAP
from memdiag.units import MIB

_FINE = MIB // 2  # memory is reserved in pages of 2 MiB, and a threshold is a fraction of them
_MOST_TRIES = 24
_RELEASES = (SEGMENT_FREE, SEGMENT_UNMAP)


def fit_limit(limits: Limits, run: Callable[[Limits], ReplayComparison]) -> Limits:
    """Returns ``limits`` with the limit of the process that explains most.

    Args:
        limits: Limits inferred from refused requests and garbage collection.
        run: Replays under some limits and compares with the recording.
    """
    low, high = limits.limit_range
    best, furthest = limits, -1
    tried = limits.limit_bytes
    for _ in range(_MOST_TRIES):
        if tried is None:
            break
        candidate = with_limit(limits, tried)
        seen = run(candidate)
        if seen.bad is None:
            return candidate
        if seen.bad > furthest:
            best, furthest = candidate, seen.bad
        side = _side(seen)
        if side == 0:
            break
        low, high = (tried + 1, high) if side < 0 else (low, tried)
        tried = (low + high) // 2 if high - low > _FINE else None
    return best


def with_limit(limits: Limits, limit: int) -> Limits:
    """Returns ``limits`` with another limit of the process; an inferred device has room for it."""
    capacity = limits.capacity_bytes
    if not limits.is_known and capacity is not None and capacity <= limit:
        capacity = 2 * limit
    return replace(limits, limit_bytes=limit, capacity_bytes=capacity)


def _side(seen: ReplayComparison) -> int:
    """Returns -1 if the limit was too low for the recording, 1 if it was too high, 0 if the difference is unrelated."""
    if seen.expected is not None and seen.got is not None and seen.expected != seen.got:
        if seen.got < 0:
            return -1
        if seen.expected < 0:
            return 1
    if any(action in _RELEASES for action, _, _ in seen.extra) and not any(
        action in _RELEASES for action, _, _ in seen.missing
    ):
        return -1
    if any(action in _RELEASES for action, _, _ in seen.missing):
        return 1
    return 0
