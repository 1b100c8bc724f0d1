"""Verifies a placement independently of the planner: two buffers that are live at one moment must not share a byte.

A sweep over time keeps the live buffers in a plain list, sorted by offset. It shares only the meaning of the columns
with the planner.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from memdiag.trace.table import Array


def problems(
    offsets: Array,
    size: Array,
    lower: Array,
    upper: Array,
    *,
    align: int = 1,
    height: int | None = None,
    limit: int = 10,
) -> list[str]:
    """Returns the errors of a placement, in words; empty if there are none.

    Args:
        offsets, size, lower, upper: Per buffer, in bytes; it is live in [lower, upper). If that is empty or the size is
            0, only the alignment and the sign of its offset are checked.
        align: Every offset must be a multiple of it.
        height: No buffer may end above it; None: not checked.
        limit: Stop after this many errors.
    """
    if not len(offsets) == len(size) == len(lower) == len(upper):
        return [f"{len(offsets)} offsets for {len(size)} buffers"]
    found = [f"buffer {row} lies below 0" for row in np.flatnonzero(offsets < 0)[:limit].tolist()]
    crooked = np.flatnonzero(offsets % align != 0)[:limit].tolist()
    found += [f"buffer {row} at {offsets[row]} is not aligned to {align}" for row in crooked]
    if height is not None:
        above = np.flatnonzero((offsets + size > height) & (lower < upper))[:limit].tolist()
        found += [f"buffer {row} ends at {offsets[row] + size[row]}, above the height {height}" for row in above]
    if len(found) < limit:
        found += _overlaps(offsets, size, lower, upper, limit - len(found))
    return found[:limit]


def _overlaps(offsets: Array, size: Array, lower: Array, upper: Array, limit: int) -> list[str]:
    """Returns at most ``limit`` pairs of buffers that share a byte at some moment."""
    exists = np.flatnonzero((size > 0) & (lower < upper))
    # frees come before allocations of the same moment
    moments = sorted(
        [(moment, 1, row) for moment, row in zip(lower[exists].tolist(), exists.tolist(), strict=True)]
        + [(moment, 0, row) for moment, row in zip(upper[exists].tolist(), exists.tolist(), strict=True)]
    )
    place, length = offsets.tolist(), size.tolist()
    live: list[tuple[int, int]] = []  # offset and row
    found: list[str] = []
    for time, is_birth, row in moments:
        key = (place[row], row)
        at = bisect_left(live, key)
        if not is_birth:
            del live[at]
            continue
        # Live buffers do not overlap each other once the reported ones are removed, so check only the two neighbours.
        for beside in live[max(at - 1, 0) : at + 1]:
            if beside[0] < place[row] + length[row] and place[row] < beside[0] + length[beside[1]]:
                found.append(f"buffers {beside[1]} and {row} share bytes at {time}")
                if len(found) == limit:
                    return found
        insort(live, key)
    return found
