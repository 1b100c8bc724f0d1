"""Which requests of two steps are each other's: steps of a training ask for the same, but for a few requests more or fewer."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

_MOST_SKIPPED = 256  # requests in a row that only one of two steps has
_MATCH = 8  # requests in a row that must be the same for the two to go on together


def aligned(workload: Workload, sizes: Array, one: Array, other: Array) -> tuple[Array, Array]:
    """Returns the calls of two steps that are each other's: two arrays of one length, both ascending.

    Args:
        workload: The calls.
        sizes: Their bytes, rounded to blocks: a recording has no other size of a failed request.
        one, other: Calls that allocate, in order (int64).
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
    """Returns how many to skip of each, as few as possible, so that both go on with the same requests; None: they do not."""
    for total in range(1, 2 * _MOST_SKIPPED):
        for a in range(max(0, total - _MOST_SKIPPED), min(total, _MOST_SKIPPED) + 1):
            b = total - a
            length = min(_MATCH, len(first) - a, len(second) - b)
            if length > 0 and first[a] == second[b] and (first[a : a + length] == second[b : b + length]).all():
                return a, b
    return None
