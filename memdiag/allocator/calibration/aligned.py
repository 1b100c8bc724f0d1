"""Aligns the requests of two training steps, which are equal except for a few additional or missing requests."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

_MOST_SKIPPED = 256  # most consecutive requests that only one of two steps has
_FEW_SKIPPED = 16  # which are looked for first, since it takes less time
_MATCH = 8  # consecutive equal requests that end such a gap


def aligned(workload: Workload, sizes: Array, one: Array, other: Array) -> tuple[Array, Array]:
    """Returns the matching calls of two steps, as two ascending arrays of equal length.

    Args:
        workload: The calls.
        sizes: Their bytes, rounded to blocks, the only size that a recording has for a failed request.
        one, other: The allocating calls of each step, in order (int64).
    """
    columns = (sizes, workload.stream, workload.pool)
    keys = [np.stack([column[calls].astype(np.int64) for column in columns], axis=1) for calls in (one, other)]
    _, numbers = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    first, second = numbers[: len(one)].ravel(), numbers[len(one) :].ravel()
    left: list[int] = []
    right: list[int] = []
    a = b = 0
    while a < len(first) and b < len(second):
        if first[a] == second[b]:
            left.append(a)
            right.append(b)
            a, b = a + 1, b + 1
            continue
        skip = _next_match(first[a : a + 2 * _MOST_SKIPPED], second[b : b + 2 * _MOST_SKIPPED])
        if skip is None:
            a, b = a + 1, b + 1
        else:
            a, b = a + skip[0], b + skip[1]
    return one[left], other[right]


def _next_match(first: Array, second: Array) -> tuple[int, int] | None:
    """Returns the fewest requests to skip in each step so that both continue equally; None if there is no match."""
    for most in (_FEW_SKIPPED, _MOST_SKIPPED):
        a, b = np.nonzero(_continue_equally(first, second, most))
        totals = np.where(a + b < 2 * _MOST_SKIPPED, a + b, 2 * _MOST_SKIPPED)
        fewest = int(totals.min(initial=2 * _MOST_SKIPPED))
        if fewest <= most or (most == _MOST_SKIPPED and fewest < 2 * _MOST_SKIPPED):
            at = int(np.argmax(totals == fewest))  # of several, the one with the fewest in the first step
            return int(a[at]), int(b[at])
    return None


def _continue_equally(first: Array, second: Array, most: int) -> Array:
    """Returns whether the next requests are equal for 0 to ``most`` skipped ones of each step, or a step is over."""
    one, other = (np.full(most + _MATCH, -1, np.int64) for _ in range(2))
    one[: len(first)], other[: len(second)] = first[: len(one)], second[: len(other)]
    is_over = (one < 0)[:, None] | (other < 0)[None, :]
    is_equal = (one[:, None] == other[None, :]) | is_over
    count = most + 1
    result: Array = ~is_over[:count, :count]
    for k in range(_MATCH):
        result &= is_equal[k : k + count, k : k + count]
    return result
