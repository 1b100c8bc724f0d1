"""One buffer after the other goes to the lowest place, or the tightest gap, that is free for all of its life. Compiled.

What was placed stands in a list by offset: a pass over it finds the gaps. With n buffers this takes n² / 4 short steps,
a few seconds for 60,000.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace.compiled import njit
from memdiag.trace.table import Array

ONE_PASS = 100_000  # buffers up to which a pass by any order takes seconds


@njit
def fit(
    order: Array,
    first: Array,
    last: Array,
    size: Array,
    tightest: bool,
    forget: bool,
    stop: Array,
    placed: Array,
    num: int,
    offsets: Array,
) -> int:
    """Places all buffers and returns the height; -1 if it was stopped.

    Args:
        order: Rows, in the order in which they are placed (int64).
        first, last, size: Of each buffer (int64).
        tightest: Take the smallest gap that is large enough, not the lowest.
        forget: The order is that of births: what has died is never looked at again.
        stop: One value; other than 0: stop.
        placed: Four rows for use here: the list by offset, with room for n more than it has (int64).
        num: How many it has already.
        offsets: Result (int64).
    """
    n = len(order)
    low, high, born, dead = placed[0], placed[1], placed[2], placed[3]
    height = 0
    for p in range(num):
        height = max(height, high[p])
    for k in range(n):
        if stop[0] != 0:
            return -1
        i = order[k]
        begin, end, need = first[i], last[i], size[i]
        top, place, gap = 0, -1, 1 << 62
        kept = 0
        for p in range(num):
            if forget:
                if dead[p] <= begin:
                    continue
                if kept != p:
                    low[kept], high[kept], born[kept], dead[kept] = low[p], high[p], born[p], dead[p]
                kept += 1
            if born[p] < end and dead[p] > begin:
                free = low[p] - top
                if free >= need and (place < 0 or (tightest and free < gap)):
                    place, gap = top, free
                    if not tightest and not forget:
                        break
                top = max(top, high[p])
        if forget:
            num = kept
        if place < 0:
            place = top
        offsets[i] = place
        height = max(height, place + need)
        left, right = 0, num
        while left < right:
            middle = (left + right) // 2
            if low[middle] <= place:
                left = middle + 1
            else:
                right = middle
        for p in range(num, left, -1):
            low[p], high[p], born[p], dead[p] = low[p - 1], high[p - 1], born[p - 1], dead[p - 1]
        low[left], high[left], born[left], dead[left] = place, place + need, begin, end
        num += 1
    return height


def first_fit(
    order: Array, first: Array, last: Array, size: Array, stop: Array | None = None, *, pinned: Array | None = None
) -> tuple[Array, int]:
    """Returns offsets and height of placing the buffers in that order, each as low as it can be.

    ``pinned``: what has its place already, by offset: rows begin, end, first and last section (4 x any number); None:
    nothing.
    """
    return _run(order, first, last, size, tightest=False, forget=False, stop=stop, pinned=pinned)


def best_fit(order: Array, first: Array, last: Array, size: Array, stop: Array | None = None) -> tuple[Array, int]:
    """Returns offsets and height of placing the buffers in that order, each in the tightest gap; on top where there is none."""
    return _run(order, first, last, size, tightest=True, forget=False, stop=stop)


def online(first: Array, last: Array, size: Array, *, tightest: bool, stop: Array | None = None) -> tuple[Array, int]:
    """Returns offsets and height as an allocator gets them that sees one request after the other and never moves anything."""
    return _run(np.argsort(first, kind="stable"), first, last, size, tightest=tightest, forget=True, stop=stop)


def _run(
    order: Array,
    first: Array,
    last: Array,
    size: Array,
    *,
    tightest: bool,
    forget: bool,
    stop: Array | None,
    pinned: Array | None = None,
) -> tuple[Array, int]:
    offsets = np.zeros(len(size), np.int64)
    never = np.zeros(1, np.int64) if stop is None else stop
    num = 0 if pinned is None else pinned.shape[1]
    placed = np.empty((4, num + len(size)), np.int64)
    if pinned is not None:
        placed[:, :num] = pinned
    return offsets, int(fit(order.astype(np.int64), first, last, size, tightest, forget, never, placed, num, offsets))
