"""Places buffers one by one at the lowest offset, or in the tightest gap, that is free for their whole life. Compiled.

Placed buffers are in a list by offset; one pass over it finds the gaps. With n buffers this takes n² / 4 short steps, a
few seconds for 60,000.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.model import Lifespans
from memdiag.trace.compiled import njit
from memdiag.trace.table import Array

ONE_PASS = 100_000  # number of buffers up to which a pass in any order takes seconds


@njit
def fit(
    order: Array,
    spans: Lifespans,
    tightest: bool,
    forgets: bool,
    stop: Array,
    placed: Array,
    num_placed: int,
    offsets: Array,
) -> int:
    """Places all buffers and returns the height, or -1 if it was stopped.

    Args:
        order: Rows, in the order in which they are placed (int64).
        spans: The buffers.
        tightest: Whether to use the smallest sufficient gap instead of the lowest.
        forgets: Whether ``order`` is that of allocation, so that freed buffers can be dropped from ``placed``.
        stop: A flag; any value except 0 stops the pass.
        placed: Scratch memory of four rows for all buffers: offset, end and lifetime of the placed ones, by offset
            (int64).
        num_placed: Number of buffers that ``placed`` already has.
        offsets: The result (int64).
    """
    lower, upper, size = spans
    num_buffers = len(order)
    placed_offset, placed_end, placed_lower, placed_upper = placed[0], placed[1], placed[2], placed[3]
    height = 0
    for at in range(num_placed):
        height = max(height, placed_end[at])
    for position in range(num_buffers):
        if stop[0] != 0:
            return -1
        buffer = order[position]
        buffer_lower, buffer_upper, needed = lower[buffer], upper[buffer], size[buffer]
        floor, offset, room = 0, -1, 1 << 62
        num_kept = 0
        for at in range(num_placed):
            if forgets:
                if placed_upper[at] <= buffer_lower:
                    continue
                if num_kept != at:
                    placed_offset[num_kept], placed_end[num_kept], placed_lower[num_kept], placed_upper[num_kept] = (
                        placed_offset[at],
                        placed_end[at],
                        placed_lower[at],
                        placed_upper[at],
                    )
                num_kept += 1
            if placed_lower[at] < buffer_upper and placed_upper[at] > buffer_lower:
                space = placed_offset[at] - floor
                if space >= needed and (offset < 0 or (tightest and space < room)):
                    offset, room = floor, space
                    if not tightest and not forgets:
                        break
                floor = max(floor, placed_end[at])
        if forgets:
            num_placed = num_kept
        if offset < 0:
            offset = floor
        offsets[buffer] = offset
        height = max(height, offset + needed)
        after, before = 0, num_placed
        while after < before:
            middle = (after + before) // 2
            if placed_offset[middle] <= offset:
                after = middle + 1
            else:
                before = middle
        for at in range(num_placed, after, -1):
            placed_offset[at], placed_end[at], placed_lower[at], placed_upper[at] = (
                placed_offset[at - 1],
                placed_end[at - 1],
                placed_lower[at - 1],
                placed_upper[at - 1],
            )
        placed_offset[after], placed_end[after], placed_lower[after], placed_upper[after] = (
            offset,
            offset + needed,
            buffer_lower,
            buffer_upper,
        )
        num_placed += 1
    return height


def first_fit(
    order: Array, lower: Array, upper: Array, size: Array, stop: Array | None = None, *, fixed: Array | None = None
) -> tuple[Array, int]:
    """Returns offsets and height of placing the buffers in a given order, each as low as possible.

    ``fixed`` has already placed buffers, by offset: rows offset, end, lower and upper. None: there are none.
    """
    return _run(order, Lifespans(lower, upper, size), tightest=False, forgets=False, stop=stop, fixed=fixed)


def online(lower: Array, upper: Array, size: Array, *, tightest: bool, stop: Array | None = None) -> tuple[Array, int]:
    """Returns offsets and height of an allocator that sees one request after the other and never moves a buffer."""
    return _run(
        np.argsort(lower, kind="stable"), Lifespans(lower, upper, size), tightest=tightest, forgets=True, stop=stop
    )


def _run(
    order: Array,
    spans: Lifespans,
    *,
    tightest: bool,
    forgets: bool,
    stop: Array | None,
    fixed: Array | None = None,
) -> tuple[Array, int]:
    size = spans.size
    offsets = np.zeros(len(size), np.int64)
    never = np.zeros(1, np.int64) if stop is None else stop
    num_placed = 0 if fixed is None else fixed.shape[1]
    placed = np.empty((4, num_placed + len(size)), np.int64)
    if fixed is not None:
        placed[:, :num_placed] = fixed
    return offsets, int(fit(order.astype(np.int64), spans, tightest, forgets, never, placed, num_placed, offsets))
