"""Compares a replay with its recording: the address of every block, and every segment event.

A request and the segment events right before it form one *step*; a release requested by the program is also a step.
Segment events of a step are compared as a set, because the order in which private pools are released depends on a hash.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.before import reach_below
from memdiag.allocator.result import OK, OUT_OF_MEMORY, Replay
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

SEGMENT_ACTIONS = (schema.SEGMENT_ALLOC, schema.SEGMENT_FREE, schema.SEGMENT_MAP, schema.SEGMENT_UNMAP)
_OWNERS = (w.ALLOC, w.EMPTY_CACHE, w.POOL_RELEASE)
SegmentEvent = tuple[int, int, int]  # action, address, bytes


@dataclass(frozen=True)
class RecordedColumns:
    """The recorded side of a comparison, computed once.

    Attributes:
        steps: Events at which a step ends (int64, ascending).
        requests: Events of the compared requests (alloc or oom), ascending.
        segment_rows: Segment events that belong to a step, ascending.
        bases_at, bases: Event and address of each new range of the driver. ``bases_given`` has these with their lanes,
            in the form for a replay.
    """

    device: DeviceTrace
    steps: Array
    requests: Array
    segment_rows: Array
    bases_at: Array
    bases: Array
    bases_given: Array

    @classmethod
    def of(cls, workload: Workload, device: DeviceTrace) -> RecordedColumns:
        """Returns the recorded columns of ``device``; ``workload`` was made from it."""
        events = device.events
        steps = np.unique(workload.row[np.isin(workload.op, _OWNERS)])
        requests = np.unique(workload.row[workload.op == w.ALLOC])
        segments = np.flatnonzero(np.isin(events.action, SEGMENT_ACTIONS))
        segments = segments[segments <= (steps[-1] if len(steps) else -1)]
        at = np.flatnonzero(np.isin(events.action, (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)))
        at = at[_is_new_range(device, at)]
        return cls(
            device,
            steps,
            requests,
            segments,
            at,
            events.addr[at],
            np.stack((events.addr[at], _lanes(workload, device, at))),
        )


def _lanes(workload: Workload, device: DeviceTrace, at: Array) -> Array:
    """Returns the lane of each opening event: pool, size class and stream as one number; -1: unknown."""
    regions, groups = device.regions, device.groups
    opened = np.flatnonzero(regions.opened_at >= 0)
    opened = opened[np.argsort(regions.opened_at[opened], kind="stable")]
    if not len(opened):
        return np.full(len(at), -1, np.int64)
    row = opened[np.minimum(np.searchsorted(regions.opened_at[opened], at), len(opened) - 1)]
    group = regions.group[row]
    number = {pool: index for index, pool in enumerate(workload.pools)}
    pool = np.array(
        [number.get((int(a), int(b)), -1) for a, b in zip(groups.pool_major, groups.pool_minor, strict=True)], np.int64
    )
    stream = np.searchsorted(workload.streams, groups.stream.view(np.uint64))
    lane = (pool[group] * 2 + groups.small[group]) * len(workload.streams) + stream[group]
    found: Array = np.where((regions.opened_at[row] == at) & (pool[group] >= 0), lane, -1)
    return found


def _is_new_range(device: DeviceTrace, at: Array) -> Array:
    """Returns whether each opening starts a new range: any cudaMalloc, and pages outside every range of their pool.

    The pages of a range are mapped from its beginning on, so new pages are within or directly behind the pages mapped
    before. In a range from before the trace, the first pages may have been released before the trace.
    """
    events, regions = device.events, device.regions
    is_new: Array = events.action[at] == schema.SEGMENT_ALLOC
    if is_new.all():
        return is_new
    pieces = np.flatnonzero(regions.expandable)
    before = pieces[regions.opened_at[pieces] < 0]
    ranges: dict[int, list[list[int]]] = {}  # by group: first address, last end and mapped bytes of each range
    reach = reach_below(device)
    for row in before[np.argsort(regions.start[before], kind="stable")].tolist():
        group, start, size = int(regions.group[row]), int(regions.start[row]), int(regions.size[row])
        known = ranges.setdefault(group, [[start - reach, start, 0]])[0]
        known[1], known[2] = start + size, known[2] + size
    group_of = {
        int(event): int(group) for event, group in zip(regions.opened_at[pieces], regions.group[pieces], strict=True)
    }
    group_of |= {
        int(event): int(group) for event, group in zip(regions.closed_at[pieces], regions.group[pieces], strict=True)
    }
    number = {event: place for place, event in enumerate(at.tolist())}
    for event in np.flatnonzero(np.isin(events.action, (schema.SEGMENT_MAP, schema.SEGMENT_UNMAP))).tolist():
        start, size = int(events.addr[event]), int(events.size[event])
        own = ranges.setdefault(group_of.get(event, -1), [])
        inside = next((each for each in own if each[0] <= start <= each[1] and each[2] > 0), None)
        if events.action[event] == schema.SEGMENT_UNMAP:
            if inside is not None:
                inside[2] -= size
        elif inside is None:
            is_new[number[event]] = True
            own.append([start, start + size, size])
        else:
            inside[1], inside[2] = max(inside[1], start + size), inside[2] + size
    return is_new


@dataclass(frozen=True)
class ReplayComparison:
    """The result of one replay, up to the first step that differs.

    Attributes:
        bad: Event at which that step ends; None: all steps match.
        num_requests, exact_requests, num_segment_events, exact_segment_events: Counted up to and including that step.
        num_extra: Segment events of the replay in that step that were not recorded.
        expected, got: Recorded and replayed address of the block requested in that step; None: no request; -1: out of
            memory.
        missing, extra: Segment events of that step that are only in the recording, or only in the replay.
        call: Call of the request in that step; -1: none.
    """

    bad: int | None
    num_requests: int
    exact_requests: int
    num_segment_events: int
    exact_segment_events: int
    num_extra: int = 0
    expected: int | None = None
    got: int | None = None
    missing: tuple[SegmentEvent, ...] = ()
    extra: tuple[SegmentEvent, ...] = ()
    call: int = -1


def addresses(replay: Replay, calls: Array) -> Array:
    """Returns the address of the block of each call; -1: none."""
    seg = replay.seg[calls]
    if not len(replay.bases):
        return np.full(len(calls), -1, np.int64)
    found: Array = np.where(seg >= 0, replay.bases[np.maximum(seg, 0)] + replay.off[calls], -1)
    return found


def compare(recorded: RecordedColumns, workload: Workload, replay: Replay, since: int, until: int) -> ReplayComparison:
    """Compares the steps after event ``since`` up to event ``until`` with a replay of ``workload`` that has a log."""
    events = recorded.device.events
    calls = np.flatnonzero((workload.op == w.ALLOC) & (workload.row >= 0))
    rows = workload.row[calls]
    failed = events.action[rows] == schema.OOM
    expected = np.where(failed, -1, events.addr[rows])
    got = np.where(replay.status[calls] == OK, addresses(replay, calls), -1)
    same = (expected == got) & (failed == (replay.status[calls] == OUT_OF_MEMORY))
    wrong = rows[~same]

    mine = _by_step(recorded, workload, replay)
    theirs = _recorded_by_step(recorded, since, until)
    odd = [
        step
        for step in sorted(mine.keys() | theirs.keys())
        if since < step <= until and mine.get(step) != theirs.get(step)
    ]
    candidates = [int(wrong[0])] if len(wrong) else []
    candidates += odd[:1]
    bad = min(candidates) if candidates else None
    end = until if bad is None else bad
    num_requests = int(np.count_nonzero(rows <= end))
    in_range = recorded.segment_rows[(recorded.segment_rows > since)]
    num_segments = int(np.searchsorted(in_range, end, side="right"))
    if bad is None:
        return ReplayComparison(None, num_requests, num_requests, num_segments, num_segments)
    missing = theirs.get(bad, Counter()) - mine.get(bad, Counter())
    extra = mine.get(bad, Counter()) - theirs.get(bad, Counter())
    here = np.flatnonzero(rows == bad)
    is_wrong = bool(len(here)) and not bool(same[here[0]])
    return ReplayComparison(
        bad,
        num_requests,
        num_requests - int(is_wrong),
        num_segments,
        num_segments - missing.total(),
        extra.total(),
        int(expected[here[0]]) if len(here) else None,
        int(got[here[0]]) if len(here) else None,
        tuple(missing.elements()),
        tuple(extra.elements()),
        int(calls[here[0]]) if len(here) else -1,
    )


def _recorded_by_step(recorded: RecordedColumns, since: int, until: int) -> dict[int, Counter[SegmentEvent]]:
    rows = recorded.segment_rows[(recorded.segment_rows > since) & (recorded.segment_rows <= until)]
    events = recorded.device.events
    steps = recorded.steps[np.searchsorted(recorded.steps, rows)]
    return _grouped(steps, events.action[rows], events.addr[rows], events.size[rows])


def _by_step(recorded: RecordedColumns, workload: Workload, replay: Replay) -> dict[int, Counter[SegmentEvent]]:
    log = replay.log
    if log is None:
        return {}
    chosen = np.flatnonzero(np.isin(log["action"], SEGMENT_ACTIONS))
    rows = workload.row[log["call"][chosen]]
    inside = rows <= (recorded.steps[-1] if len(recorded.steps) else -1)
    chosen, rows = chosen[inside], rows[inside]
    steps = recorded.steps[np.searchsorted(recorded.steps, rows)]
    return _grouped(
        steps, log["action"][chosen], replay.bases[log["seg"][chosen]] + log["off"][chosen], log["size"][chosen]
    )


def _grouped(steps: Array, action: Array, addr: Array, size: Array) -> dict[int, Counter[SegmentEvent]]:
    found: dict[int, Counter[SegmentEvent]] = {}
    for step, *event in zip(steps.tolist(), action.tolist(), addr.tolist(), size.tolist(), strict=True):
        found.setdefault(step, Counter())[(event[0], event[1], event[2])] += 1
    return found
