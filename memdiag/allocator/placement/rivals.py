"""Baselines for a plan: one pass of first fit by size, and allocators that do not know the future."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.firstfit import ONE_PASS, first_fit, online
from memdiag.allocator.placement.orders import by
from memdiag.results.plan import Rival
from memdiag.trace.table import Array


def rivals(sizes: Array, lower: Array, upper: Array, align: int) -> tuple[Rival, ...]:
    """Returns the heights of first fit by size, and of first fit and best fit in allocation order."""
    rows = np.flatnonzero((sizes > 0) & (lower < upper))
    size = -(-sizes[rows] // align) * align
    first, last = lower[rows], upper[rows]
    by_size = first_fit(by((size, last - first)), first, last, size)[1] if len(rows) <= ONE_PASS else None
    return (
        Rival("first_fit_by_size", by_size),
        Rival("online_first_fit", online(first, last, size, tightest=False)[1]),
        Rival("online_best_fit", online(first, last, size, tightest=True)[1]),
    )
