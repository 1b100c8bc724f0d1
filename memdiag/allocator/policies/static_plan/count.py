"""Computes the statistics of a replay with a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdiag.allocator.engine.model import RESULTS
from memdiag.allocator.policies.static_plan import arena, loop
from memdiag.allocator.policies.static_plan.detail import PlanDetail, Served
from memdiag.allocator.policies.static_plan.profile import Requests

if TYPE_CHECKING:
    from memdiag.allocator.policies.static_plan.plan import Planned
    from memdiag.trace.table import Array


def detail_of(planned: Planned, out: Array) -> PlanDetail:
    """Returns the reported details of a replay, computed from the results of the loop."""
    spans, which = planned.script.profile.spans, planned.script.profile.planned
    call, size, work = planned.requests.call, planned.requests.size, planned.workload
    way = out[loop.OUT_WAY, call]
    following = None
    if len(spans) > 1:
        following = which + 1 if which + 1 < len(spans) else which - 1

    def within(index: int) -> Array:
        rows: Array = (call >= spans[index].begin) & (call < spans[index].end)
        return rows

    arenas = out[loop.OUT_ARENAS]
    everything = Requests.of(work, np.zeros(len(work.op), np.int32), np.full(len(work.op), -1, np.int64))
    return PlanDetail(
        basis=planned.basis,
        num_steps=len(spans),
        planned_step=spans[which].number if spans else None,
        height_bytes=int(planned.script.heights.sum()),
        live_peak_bytes=int(planned.script.loads.sum()),
        run_live_peak_bytes=everything.most_live(len(work.op)),
        next_step=None if following is None else spans[following].number,
        next_step_requests=None if following is None else _served(way, size, within(following)),
        unseen_requests=None if following is None else _served(way, size, (call >= spans[0].begin) & ~within(which)),
        arena_bytes=int(arenas.max(initial=0)),
        fallback_bytes=int(np.max(out[RESULTS.index("reserved")] - arenas, initial=0)),
    )


def _served(way: Array, size: Array, rows: Array) -> Served:
    num = np.bincount(way[rows], minlength=len(arena.WAYS)).tolist()
    num_bytes = [int(size[rows & (way == number)].sum()) for number in range(len(arena.WAYS))]
    return Served(
        num_requests=sum(num),
        requested_bytes=sum(num_bytes),
        num_planned=num[arena.OWN] + num[arena.LARGER],
        planned_bytes=num_bytes[arena.OWN] + num_bytes[arena.LARGER],
        num_in_gaps=num[arena.IN_GAP],
        gap_bytes=num_bytes[arena.IN_GAP],
        num_unknown=num[arena.UNKNOWN],
        num_too_large=num[arena.TOO_LARGE],
        num_taken=num[arena.TAKEN],
        num_no_room=num[arena.NO_ROOM],
    )
