"""The two queues of copies, laid out one after the other: the part of a plan that is worked out again and again, so it is compiled."""

from __future__ import annotations

import numpy as np

from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array


@njit_part
def _not_before(seconds: Array, begin: int, moment: float) -> int:
    """Returns the first event from ``begin`` on that is not before a moment. It is near, so steps grow from there."""
    low, high, reach, most = begin, begin, 1, len(seconds) - 1
    while high < most and seconds[high] < moment:
        low, high, reach = high + 1, min(high + reach, most), 2 * reach
    while low < high:
        middle = (low + high) // 2
        if seconds[middle] < moment:
            low = middle + 1
        else:
            high = middle
    return low


@njit_part
def _not_after(seconds: Array, end: int, moment: float) -> int:
    """Returns the last event up to ``end`` that is not after a moment."""
    low, high, reach = end, end, 1
    while low > 0 and seconds[low] > moment:
        low, high, reach = max(low - reach, 0), low, 2 * reach
    while high - low > 1:
        middle = (low + high) // 2
        if seconds[middle] <= moment:
            low = middle
        else:
            high = middle
    return low


@njit
def lay_out(
    seconds: Array, begin: Array, end: Array, away: Array, back: Array, hold: Array, by_begin: Array, by_end: Array, on_demand: bool
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Returns when copies run, and the events at which the device's bytes are free and taken again.

    Args:
        seconds: When events happen; one more than there are events.
        begin, end: Per move, the events from which and until which its tensor is not needed.
        away, back: Seconds of its copies.
        hold: The event before which it may not come back.
        by_begin, by_end: Rows of moves, the first ``begin`` first, and the last ``end`` first.
        on_demand: Nothing is fetched before it is needed.

    Returns:
        ``out_begin``, ``out_end``, ``back_begin``, ``back_end`` (seconds; back infinite: never), ``out_at``, ``back_at`` (events).
    """
    num, num_events = len(begin), len(seconds) - 1
    out_begin, out_end = np.empty(num, np.float64), np.empty(num, np.float64)
    back_begin, back_end = np.full(num, np.inf), np.full(num, np.inf)
    out_at, back_at = np.empty(num, np.int64), np.full(num, num_events)
    free_from, near = -np.inf, 0
    for row in by_begin:
        out_begin[row] = max(seconds[begin[row]], free_from)
        free_from = out_begin[row] + away[row]
        out_end[row] = free_from
        near = _not_before(seconds, max(begin[row], near), free_from)  # no earlier than the copy before it
        out_at[row] = near
    free_until, near = np.inf, num_events
    for row in by_end:
        if end[row] < num_events:
            needed = seconds[end[row]]
            if on_demand:
                back_begin[row] = max(needed, out_end[row])
                back_at[row] = end[row]
            else:
                free_until = min(needed, free_until) - back[row]
                near = _not_after(seconds, min(end[row], near), free_until)  # no later than the copy behind it
                back_begin[row] = max(free_until, seconds[min(hold[row], end[row])], out_end[row])
                back_at[row] = near if back_begin[row] == free_until else _not_after(seconds, end[row], back_begin[row])
            back_end[row] = back_begin[row] + back[row]
            back_at[row] = max(back_at[row], out_at[row])
        out_at[row] = min(out_at[row], back_at[row])
    return out_begin, out_end, back_begin, back_end, out_at, back_at
