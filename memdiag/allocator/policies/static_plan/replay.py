"""Replays a workload with a plan made from it, or with a separate range for each request (the lower bound)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.engine.memory import LOG_ALL, LOG_NOTHING, new_record
from memdiag.allocator.engine.model import Model, Setup
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.policies.base import Policy
from memdiag.allocator.policies.caching.pools import pools_of
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.policies.static_plan import arena, loop
from memdiag.allocator.policies.static_plan.count import detail_of
from memdiag.allocator.policies.static_plan.detail import PlanDetail
from memdiag.allocator.policies.static_plan.plan import Planned
from memdiag.allocator.policies.static_plan.profile import Requests, spans_of
from memdiag.allocator.policies.static_plan.script import script_of
from memdiag.allocator.policies.static_plan.slots import NUM_SCRIPTS, PROGRESS, SCRIPT, SLOT, STEP, SlotPlan
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions.rules import rules_for
from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

_BACKEND = "cuda"
_NEWEST = "2.13"


@dataclass(frozen=True)
class PlannedReplay(Replay):
    """A replay with statistics on the plan."""

    planned: PlanDetail | None = None


def make_plan(workload: Workload, site: Array, step: Array, basis: str) -> Planned:
    """Makes a plan for a workload.

    Args:
        workload: The requests of the program.
        site, step: Allocation site and step of each call.
        basis: Evidence for the steps.
    """
    whole = _with_start(workload)
    before = len(whole.op) - len(workload.op)
    pool = pools_of(whole, rules_for(_BACKEND, _NEWEST))
    site, step = (np.concatenate((np.full(before, -1, np.int64), column.astype(np.int64))) for column in (site, step))
    requests = Requests.of(whole, pool, site)
    script = script_of(requests, spans_of(step), len(whole.op), max(len(whole.streams), 1))
    return Planned(whole, before, pool, site, step, basis, requests, script)


def _with_start(workload: Workload) -> Workload:
    return with_start_allocated(workload) if len(workload.start.base) else workload


def replay_planned(planned: Planned, policy: Policy[Any], scenario: Scenario, *, log: bool = False) -> PlannedReplay:
    """Replays a new run of the program with its plan.

    Args:
        planned: The plan.
        policy: Settings and sizes of the fallback allocator.
        scenario: Settings, version and device.
        log: Whether to keep the allocator's log.

    Raises:
        MemdiagError: The allocator refuses the settings.
    """
    found, out = _run(planned.workload, planned.num_before, planned, policy, scenario, log=log)
    return PlannedReplay(**vars(found), planned=detail_of(planned, out))


def replay_bound(workload: Workload, policy: Policy[Any], scenario: Scenario, *, log: bool = False) -> Replay:
    """Replays ``workload`` with a separate range for each request, released as soon as possible.

    The result is a lower bound for every allocator. Sizes are rounded up to 512 bytes, as in all of PyTorch's
    allocators. The arguments are those of ``replay_planned``.
    """
    whole = _with_start(workload)
    of_pools = np.isin(whole.op, (w.POOL_BEGIN, w.POOL_END, w.POOL_RELEASE))
    whole = replace(whole, op=np.where(of_pools, w.NOTHING, whole.op).astype(np.int8))
    return _run(whole, len(whole.op) - len(workload.op), None, policy, scenario, log=log)[0]


def _run(
    workload: Workload, before: int, planned: Planned | None, policy: Policy[Any], scenario: Scenario, *, log: bool
) -> tuple[Replay, Array]:
    """Runs the model; returns the replay and its raw results, including the calls that create the initial state."""
    conf, rules = parameters(policy, scenario.conf, scenario.torch_version)
    pools = pools_of(workload, rules) if planned is None else planned.pool
    model = Model.of(
        workload,
        Setup(
            conf,
            rules,
            scenario.capacity_bytes,
            scenario.fraction,
            LOG_ALL if log else LOG_NOTHING,
            num_own_pools=1,
            num_own_results=loop.NUM_OWN_RESULTS,
        ),
        policy.block_and_segment_sizes(workload.size, conf, rules),
        pools,
        first=before,
    )
    own_pool = len(workload.pools)
    pool = model.nodes[model.state.pools + own_pool]
    pool.is_private, pool.exists, pool.use_count = 0, 1, 1  # its segments are not counted, and it is never released
    model.out[loop.OUT_WAY] = arena.OTHER
    model.run(loop.run, _own(planned, len(workload.op), max(len(workload.streams), 1), own_pool))
    found = Replay.from_columns(scenario, model.columns())
    if found.log is not None:
        found.log["pool"][found.log["pool"] == own_pool] = 0
    return found, model.out


def _own(planned: Planned | None, num_calls: int, num_streams: int, own_pool: int) -> SlotPlan:
    """Returns the loop's form of the plan; None: each request has a separate segment."""
    progress, scripts, arenas = (
        new_record(PROGRESS),
        np.zeros(NUM_SCRIPTS, SCRIPT),
        np.zeros(num_streams, arena.ARENA),
    )
    progress.is_alone, progress.own_pool, progress.cycle = planned is None, own_pool, -1
    cycle, site = np.zeros(num_calls, np.int64), np.full(num_calls, -1, np.int64)
    if planned is None:
        none = np.empty((2, 0), np.int64)
        return SlotPlan(
            progress,
            scripts,
            np.empty(0, SLOT),
            arenas,
            np.zeros((num_streams, 1), arena.TAKEN_PLACE),
            none,
            site,
            cycle,
        )
    slots, begin = planned.script.slots.copy(), planned.script.begin
    scripts["begin"], scripts["pointer"], scripts["end"] = begin[:-1], begin[:-1], begin[1:]
    arenas["height"], arenas["planned"] = planned.script.heights, planned.script.planned
    for number, span in enumerate(planned.script.profile.spans):
        cycle[span.begin : span.end] = number + 1
    of_step = np.arange(begin[STEP], begin[-1])
    first, second = slots["offset"][of_step], slots["second"][of_step]
    by_place = np.stack(
        [of_step[np.argsort(off, kind="stable")] for off in (first, np.where(second >= 0, second, first))]
    )
    taken = np.zeros((num_streams, 2 * len(slots) + len(planned.requests.call) + 1), arena.TAKEN_PLACE)
    return SlotPlan(progress, scripts, slots, arenas, taken, by_place, planned.site.astype(np.int64), cycle)
