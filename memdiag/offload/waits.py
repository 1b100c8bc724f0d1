"""Inserts waits for room, so that a plan with real copy times can be executed: one compiled pass over the events.

A wait delays all later events, and with them the latest reload times of tensors needed after it, which remain between
the same events. Earlier departures are not affected. So events before a wait never have to be processed again.

The incoming queue may reload a tensor before it is needed, because later ones follow it. Such a reload can also be
delayed: it is held until after an event at which its room is needed. Tensors needed last are held first.
"""

from __future__ import annotations

import numpy as np

from memdiag.offload.queues import latest_return
from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array

# The state of the pass. In the outgoing queue: copies that have entered, and that are done. In the incoming queue
# (latest needed first): copies from DUE on are due, from NEEDED on needed, and from DUE to CUT held. Bytes: offloaded
# until they are due, offloaded because they are held, and on their way out.
ENTERED, LEFT, DUE, CUT, NEEDED, GONE, HELD, GOING, NUM_STATE = range(9)
_NO_MATTER = 1 << 62  # bytes


@njit
def wait_for_room(
    seconds: Array,
    begin: Array,
    end: Array,
    away: Array,
    back: Array,
    by_begin: Array,
    by_end: Array,
    size: Array,
    excess: Array,
) -> tuple[Array, Array, float]:
    """Makes the program wait where too few bytes are offloaded; if no running copy helps, more reloads are held back.

    Args:
        seconds, begin, end, away, back, by_begin, by_end: As in ``lay_out``.
        size: Bytes of each move.
        excess: Bytes that must be offloaded after each event; 0 or negative for none.

    Returns:
        ``seconds`` with waits, ``hold`` as in ``lay_out``, and the total wait. If that cannot help, the pass ends with
        too few bytes offloaded.
    """
    num, num_events = len(begin), len(seconds) - 1
    due = latest_return(seconds, end, back, by_end)[1]
    rank = np.empty(num, np.int64)
    for place in range(num):
        rank[by_end[place]] = place
    later, hold = seconds.copy(), np.zeros(num, np.int64)
    out_end, there, returned = np.empty(num, np.float64), np.zeros(num, np.int64), np.zeros(num_events + 1, np.int64)
    s = np.zeros(NUM_STATE, np.int64)
    s[DUE] = s[CUT] = s[NEEDED] = num
    stalled, moment, until, is_over = 0.0, -np.inf, 0, False
    for at in range(num_events + 1):
        moment = max(seconds[at] + stalled, moment)
        later[at] = moment
        s[GONE] -= returned[at]
        if at == num_events or excess[at] <= 0 or is_over:
            continue
        _line_up(s, at, later, begin, away, by_begin, size, out_end)
        _come_due(s, at, due, end, by_end, there)
        _let_go(s, _NO_MATTER, until, by_end, there, hold)
        while True:
            _leave(s, at, moment, due, rank, by_begin, size, out_end, there, returned)
            enough = s[GONE]
            if enough + s[GOING] < excess[at]:
                _hold(s, excess[at], by_end, there)
                enough += s[HELD]
            if enough >= excess[at] or enough + s[GOING] < excess[at]:
                break
            last = s[LEFT]
            while enough < excess[at]:
                enough += size[by_begin[last]]
                last += 1
            moment = out_end[by_begin[last - 1]]
            later[at], stalled = moment, moment - seconds[at]
        is_over = enough < excess[at]
        _let_go(s, excess[at], until, by_end, there, hold)
        until = at + 1
    _let_go(s, 0, until, by_end, there, hold)
    return later, hold, stalled


@njit_part
def _line_up(
    s: Array, at: int, later: Array, begin: Array, away: Array, by_begin: Array, size: Array, out_end: Array
) -> None:
    """Adds tensors that are idle before an event to the outgoing queue."""
    while s[ENTERED] < len(by_begin) and begin[by_begin[s[ENTERED]]] < at:
        row = by_begin[s[ENTERED]]
        free_from = out_end[by_begin[s[ENTERED] - 1]] if s[ENTERED] else -np.inf
        out_end[row] = max(later[begin[row]], free_from) + away[row]
        s[GOING] += size[row]
        s[ENTERED] += 1


@njit_part
def _leave(
    s: Array,
    at: int,
    moment: float,
    due: Array,
    rank: Array,
    by_begin: Array,
    size: Array,
    out_end: Array,
    there: Array,
    returned: Array,
) -> None:
    """Completes finished outgoing copies. A copy that completes after it is due frees room only if it is held."""
    while s[LEFT] < s[ENTERED] and out_end[by_begin[s[LEFT]]] <= moment:
        row = by_begin[s[LEFT]]
        there[row] = size[row]
        if due[row] > at:
            s[GONE] += size[row]
            returned[due[row]] += size[row]
        elif s[DUE] <= rank[row] < s[CUT]:
            s[HELD] += size[row]
        s[GOING] -= size[row]
        s[LEFT] += 1


@njit_part
def _come_due(s: Array, at: int, due: Array, end: Array, by_end: Array, there: Array) -> None:
    """Advances to an event in the incoming queue.

    Copies that become due are needed later than held ones, so they are held first.
    """
    while s[DUE] > 0 and due[by_end[s[DUE] - 1]] <= at:
        s[DUE] -= 1
        s[HELD] += there[by_end[s[DUE]]]
    while s[NEEDED] > 0 and end[by_end[s[NEEDED] - 1]] <= at:
        s[NEEDED] -= 1


@njit_part
def _hold(s: Array, least: int, by_end: Array, there: Array) -> None:
    """Holds more copies, until enough bytes are offloaded."""
    while s[GONE] + s[HELD] < least and s[CUT] < s[NEEDED]:
        s[HELD] += there[by_end[s[CUT]]]
        s[CUT] += 1


@njit_part
def _let_go(s: Array, least: int, until: int, by_end: Array, there: Array, hold: Array) -> None:
    """Releases copies that are needed now, and those that are no longer required."""
    while s[CUT] > s[DUE]:
        row = by_end[s[CUT] - 1]
        if s[CUT] <= s[NEEDED] and s[GONE] + s[HELD] - there[row] < least:
            break
        s[CUT] -= 1
        s[HELD] -= there[row]
        hold[row] = until
