"""Inserts waits for room, so that a plan with real copy times can be executed: one compiled pass over the events.

A wait delays all later events, and with them the latest reload times of tensors needed after it, which remain between
the same events. Earlier departures are not affected. So events before a wait never have to be processed again.

The incoming queue may reload a tensor before it is needed, because later ones follow it. Such a reload can also be
delayed: it is held until after an event at which its room is needed. Tensors needed last are held first. A copy that is
late delays all that follow it, and a reload that has not begun for this reason is held at no cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.offload.queues import CopyTimes, latest_return
from memdiag.trace.compiled import lean_part, njit
from memdiag.trace.table import Array

# The state of the pass. In the outgoing queue: copies that have entered, and that are done. In the incoming queue
# (latest needed first): copies from DUE on are due, from NEEDED on needed, from DUE to CUT held, and from BEGUN on they
# have begun before the next event. Bytes: offloaded until they are due, offloaded because they are held, and on their
# way out but not needed yet.
ENTERED, LEFT, DUE, CUT, BEGUN, NEEDED, GONE, HELD, GOING, NUM_STATE = range(10)
_NO_MATTER = 1 << 62  # bytes


class _Queues(NamedTuple):
    """The copies of both queues: arrays with a value per move.

    Attributes:
        begin, end, away, back, by_begin, by_end: As in ``CopyTimes``.
        size: Bytes of each move.
        due: Event before which the reload begins at the latest.
        latest: Time of that, without waits.
        rank: Place in the incoming queue.
        out_end: Time at which its copy to the host is done; infinite before it has entered the queue.
        there: Its bytes, once they are offloaded.
        hold: The event before which it may not be reloaded.
        back_end: By place in the incoming queue, when the reload is done; one more, for "before the first".
        returned: By event, bytes that are due then.
        later: By event, its time with waits.
    """

    begin: Array
    end: Array
    away: Array
    back: Array
    by_begin: Array
    by_end: Array
    size: Array
    due: Array
    latest: Array
    rank: Array
    out_end: Array
    there: Array
    hold: Array
    back_end: Array
    returned: Array
    later: Array


@njit
def wait_for_room(seconds: Array, copies: CopyTimes, size: Array, excess: Array) -> tuple[Array, Array, float]:
    """Makes the program wait where too few bytes are offloaded; if no running copy helps, more reloads are held back.

    Args:
        seconds, copies: As in ``lay_out``.
        size: Bytes of each move.
        excess: Bytes that must be offloaded after each event; 0 or negative for none.

    Returns:
        ``seconds`` with waits, ``hold`` as in ``lay_out``, and the total wait. If that cannot help, the pass ends with
        too few bytes offloaded.
    """
    begin, end, away, back, by_begin, by_end = copies
    num, num_events = len(begin), len(seconds) - 1
    latest, due = latest_return(seconds, end, back, by_end)
    rank = np.empty(num, np.int64)
    for place in range(num):
        rank[by_end[place]] = place
    out_end, back_end = np.full(num, np.inf), np.full(num + 1, -np.inf)
    there, hold, returned = np.zeros(num, np.int64), np.zeros(num, np.int64), np.zeros(num_events + 1, np.int64)
    later = seconds.copy()
    q = _Queues(
        begin,
        end,
        away,
        back,
        by_begin,
        by_end,
        size,
        due,
        latest,
        rank,
        out_end,
        there,
        hold,
        back_end,
        returned,
        later,
    )
    s = np.zeros(NUM_STATE, np.int64)
    s[DUE] = s[CUT] = s[BEGUN] = s[NEEDED] = num
    stalled, moment, until, is_over = 0.0, -np.inf, 0, False
    for at in range(num_events + 1):
        moment = max(seconds[at] + stalled, moment)
        later[at] = moment
        s[GONE] -= returned[at]
        if at == num_events or excess[at] <= 0 or is_over:
            continue
        _line_up(s, q, at)
        _come_due(s, q, at)
        _let_go(s, q, _NO_MATTER, until)
        while True:
            _leave(s, q, at, moment)
            following = max(seconds[at + 1] + stalled, moment)
            _begin(s, q, at, following, stalled)
            enough = s[GONE] + _late(s, q, excess[at], until, following, stalled)
            if enough + s[GOING] < excess[at]:
                _hold(s, q, excess[at])
                enough = s[GONE] + s[HELD]
            if enough >= excess[at] or enough + s[GOING] < excess[at]:
                break
            last = s[LEFT]
            while enough < excess[at]:
                if end[by_begin[last]] > at:
                    enough += size[by_begin[last]]
                last += 1
            moment = out_end[by_begin[last - 1]]
            later[at], stalled = moment, moment - seconds[at]
        is_over = enough < excess[at]
        _let_go(s, q, excess[at], until)
        until = at + 1
    _let_go(s, q, 0, until)
    return later, hold, stalled


@lean_part
def _line_up(s: Array, q: _Queues, at: int) -> None:
    """Adds tensors that are idle before an event to the outgoing queue."""
    while s[ENTERED] < len(q.by_begin) and q.begin[q.by_begin[s[ENTERED]]] < at:
        row = q.by_begin[s[ENTERED]]
        free_from = q.out_end[q.by_begin[s[ENTERED] - 1]] if s[ENTERED] else -np.inf
        q.out_end[row] = max(q.later[q.begin[row]], free_from) + q.away[row]
        s[GOING] += q.size[row]
        s[ENTERED] += 1


@lean_part
def _leave(s: Array, q: _Queues, at: int, moment: float) -> None:
    """Completes finished outgoing copies. A copy that completes after it is due frees room only if it is held."""
    while s[LEFT] < s[ENTERED] and q.out_end[q.by_begin[s[LEFT]]] <= moment:
        row = q.by_begin[s[LEFT]]
        q.there[row] = q.size[row]
        if q.due[row] > at:
            s[GONE] += q.size[row]
            q.returned[q.due[row]] += q.size[row]
        elif s[DUE] <= q.rank[row] < s[CUT]:
            s[HELD] += q.size[row]
        if q.end[row] > at:
            s[GOING] -= q.size[row]
        s[LEFT] += 1


@lean_part
def _come_due(s: Array, q: _Queues, at: int) -> None:
    """Advances to an event in the incoming queue.

    Copies that become due are needed later than held ones, so they are held first. A tensor that is needed before its
    copy has left frees no room, so the program does not wait for it.
    """
    while s[DUE] > 0 and q.due[q.by_end[s[DUE] - 1]] <= at:
        s[DUE] -= 1
        s[HELD] += q.there[q.by_end[s[DUE]]]
    while s[NEEDED] > 0 and q.end[q.by_end[s[NEEDED] - 1]] <= at:
        s[NEEDED] -= 1
        row = q.by_end[s[NEEDED]]
        if not q.there[row]:
            s[GOING] -= q.size[row]


@lean_part
def _begin(s: Array, q: _Queues, at: int, following: float, stalled: float) -> None:
    """Begins the reloads that are not held, up to the time of the following event, as in ``lay_out``."""
    while s[BEGUN] > s[CUT]:
        row = q.by_end[s[BEGUN] - 1]
        is_needed = q.end[row] <= at
        if s[BEGUN] <= s[DUE] and not is_needed:
            break
        not_before = max(q.later[min(q.hold[row], q.end[row])], q.out_end[row], q.back_end[s[BEGUN]])
        begin = max(q.latest[row] + stalled, not_before)
        if begin >= following and not is_needed:
            break
        s[BEGUN] -= 1
        q.back_end[s[BEGUN]] = begin + q.back[row]


@lean_part
def _late(s: Array, q: _Queues, least: int, until: int, following: float, stalled: float) -> int:
    """Returns the bytes of due copies that begin no earlier than the following event even if nothing holds them now.

    Those that are required are held, so that they remain offloaded.
    """
    if s[BEGUN] > s[CUT]:
        while s[GONE] + s[HELD] < least and s[CUT] < s[BEGUN]:
            s[HELD] += q.there[q.by_end[s[CUT]]]
            s[CUT] += 1
        return int(s[HELD])
    late, free_from = s[HELD], q.back_end[s[CUT]]
    for place in range(s[CUT] - 1, s[DUE] - 1, -1):
        row = q.by_end[place]
        begin = max(q.latest[row] + stalled, q.later[until], q.out_end[row], free_from)
        if begin >= following:
            break
        free_from = begin + q.back[row]
        late -= q.there[row]
    return int(late)


@lean_part
def _hold(s: Array, q: _Queues, least: int) -> None:
    """Holds more copies, until enough bytes are offloaded."""
    while s[GONE] + s[HELD] < least and s[CUT] < s[NEEDED]:
        s[HELD] += q.there[q.by_end[s[CUT]]]
        s[CUT] += 1
    s[BEGUN] = max(s[BEGUN], s[CUT])


@lean_part
def _let_go(s: Array, q: _Queues, least: int, until: int) -> None:
    """Releases copies that are needed now, and those that are no longer required."""
    while s[CUT] > s[DUE]:
        row = q.by_end[s[CUT] - 1]
        if s[CUT] <= s[NEEDED] and s[GONE] + s[HELD] - q.there[row] < least:
            break
        s[CUT] -= 1
        s[HELD] -= q.there[row]
        q.hold[row] = until
