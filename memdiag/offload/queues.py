"""The two copy queues, one per direction: recomputed often for a plan, so they are compiled.

The outgoing queue is processed forward from the first event: each copy begins as soon as its tensor is idle and the
previous copy is done. The incoming queue is processed backward from the last: each copy ends when its tensor is needed,
or when the next copy begins. So an event affects only later outgoing copies and earlier incoming ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array


class CopyTimes(NamedTuple):
    """The copies of moves.

    Attributes:
        begin, end: Per move, the events from which and until which its tensor is idle.
        away, back: Seconds of its copies.
        by_begin, by_end: Rows of moves, sorted by ``begin`` ascending, and by ``end`` descending.
    """

    begin: Array
    end: Array
    away: Array
    back: Array
    by_begin: Array
    by_end: Array


@njit_part
def _not_before(seconds: Array, begin: int, moment: float) -> int:
    """Returns the first event from ``begin`` on that is not before a time.

    That event is usually near ``begin``, so the search steps start small and grow.
    """
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
    """Returns the last event up to ``end`` that is not after a time."""
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


@njit_part
def latest_return(seconds: Array, end: Array, back: Array, by_end: Array) -> tuple[Array, Array]:
    """Returns the latest begin of each copy back (infinite: never), and the last event that is not after it."""
    moment, event = np.full(len(end), np.inf), np.full(len(end), len(seconds) - 1)
    free_until, near = np.inf, len(seconds) - 1
    for row in by_end:
        if end[row] < len(seconds) - 1:
            free_until = min(seconds[end[row]], free_until) - back[row]
            near = _not_after(seconds, min(end[row], near), free_until)  # no later than the begin of the next copy
            moment[row], event[row] = free_until, near
    return moment, event


@njit
def lay_out(
    seconds: Array, copies: CopyTimes, hold: Array, on_demand: bool
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Returns when copies run, and the events at which the device's bytes are free and allocated again.

    Args:
        seconds: Event times; one more than there are events.
        copies: The copies of all moves.
        hold: Per move, the event before which it may not be reloaded.
        on_demand: Whether tensors are reloaded only when needed.

    Returns:
        ``out_begin``, ``out_end``, ``back_begin``, ``back_end`` (seconds; back infinite: never), ``out_at``,
        ``back_at`` (events).
    """
    begin, end, away, back, by_begin, by_end = copies
    num, num_events = len(begin), len(seconds) - 1
    out_begin, out_end = np.empty(num, np.float64), np.empty(num, np.float64)
    out_at = np.empty(num, np.int64)
    free_from, near = -np.inf, 0
    for row in by_begin:
        out_begin[row] = max(seconds[begin[row]], free_from)
        free_from = out_begin[row] + away[row]
        out_end[row] = free_from
        near = _not_before(seconds, max(begin[row], near), free_from)  # no earlier than the previous copy
        out_at[row] = near
    back_begin, back_at = latest_return(seconds, end, back, by_end)
    free_from = -np.inf
    for row in by_end[::-1]:  # the tensor needed first is reloaded first
        if end[row] < num_events:
            latest = back_begin[row]
            if on_demand:
                back_begin[row] = max(seconds[end[row]], out_end[row])
                back_at[row] = end[row]
            else:
                back_begin[row] = max(latest, seconds[min(hold[row], end[row])], out_end[row], free_from)
                free_from = back_begin[row] + back[row]
                if back_begin[row] > latest:
                    back_at[row] = _not_after(seconds, end[row], back_begin[row])
            back_at[row] = max(back_at[row], out_at[row])
        out_at[row] = min(out_at[row], back_at[row])
    return out_begin, out_end, back_begin, back_begin + back, out_at, back_at


@njit
def waits_for(needed: Array, back_end: Array, by_end: Array) -> Array:
    """Returns how long the program waits for each copy, in seconds.

    While it waits for one copy, later ones get more time.

    Args:
        needed: When each tensor is needed, by a clock that does not include these waits; infinite: never.
        back_end: When its copy ends.
        by_end: As in ``lay_out``.
    """
    wait, waited = np.zeros(len(needed), np.float64), 0.0
    for row in by_end[::-1]:
        if needed[row] < np.inf:
            wait[row] = max(back_end[row] - needed[row] - waited, 0.0)
            waited += wait[row]
    return wait


@njit
def in_time(
    idle_from: Array,
    needed: Array,
    away: Array,
    back: Array,
    by_begin: Array,
    by_end: Array,
    first_to_go: Array,
    late: float,
) -> Array:
    """Returns whether each move is kept, so that no kept one is reloaded late.

    Dropping some may make others timely, so an eighth of the late ones is dropped at once.

    Args:
        idle_from, needed: Per move, from when and until when its tensor is idle, in seconds; infinite if it is never
            needed again.
        away, back, by_begin, by_end: As in ``lay_out``.
        first_to_go: Rows of moves, in the order in which they are dropped.
        late: Tolerance in seconds.
    """
    kept, is_late = np.ones(len(away), np.bool_), np.zeros(len(away), np.bool_)
    out_end, latest = np.empty(len(away), np.float64), np.empty(len(away), np.float64)
    while True:
        free_from = -np.inf
        for row in by_begin:
            if kept[row]:
                free_from = max(idle_from[row], free_from) + away[row]
                out_end[row] = free_from
        free_until = np.inf
        for row in by_end:
            if kept[row] and needed[row] < np.inf:
                free_until = min(needed[row], free_until) - back[row]
                latest[row] = free_until
        free_from, waited, num_late = -np.inf, 0.0, 0
        for row in by_end[::-1]:  # as in lay_out and waits_for
            is_late[row] = False
            if kept[row] and needed[row] < np.inf:
                free_from = max(latest[row], out_end[row], free_from) + back[row]
                wait = max(free_from - needed[row] - waited, 0.0)
                waited += wait
                is_late[row] = wait > late
                num_late += is_late[row]
        if not num_late:
            return kept
        going = max(num_late // 8, 1)
        for row in first_to_go:
            if is_late[row]:
                kept[row] = False
                going -= 1
                if not going:
                    break
