"""Replays a workload through a plan that was made from it, or with a range of its own for each request: the bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.conf import Conf
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine import run as base
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.engine.state import enlarge, limits, new_state, segments
from memdiag.allocator.lenders import turns_of
from memdiag.allocator.planned import arena, machine
from memdiag.allocator.planned import slots as s
from memdiag.allocator.planned.count import told_of
from memdiag.allocator.planned.profile import Requests, spans_of
from memdiag.allocator.planned.script import Script, script_of
from memdiag.allocator.replay import DONE, pools_of
from memdiag.allocator.result import Replay
from memdiag.allocator.rules import rules_for
from memdiag.allocator.workload import Workload
from memdiag.registry import POLICIES, resolve
from memdiag.results.planned import PlanTold
from memdiag.trace.table import Array

_BACKEND = "cuda"
_NEWEST = "2.13"


@dataclass(frozen=True)
class Planned:
    """A plan, and what it was made from.

    Attributes:
        workload: With the tensors of its start as requests in front, which were not calls of the trace (``num_before``).
        pool, site, step: Of each call: pool of a request, where in the program it is made, number of the step; -1: unknown, none.
        basis: What the steps rest on: "marks", "stacks" … or "none".
    """

    workload: Workload
    num_before: int
    pool: Array
    site: Array
    step: Array
    basis: str
    requests: Requests
    script: Script


@dataclass(frozen=True)
class PlannedReplay(Replay):
    """A replay, and how far the plan held; None: there is none (the bound)."""

    planned: PlanTold | None = None


def make_plan(workload: Workload, site: Array, step: Array, basis: str) -> Planned:
    """Makes a plan for a workload.

    Args:
        workload: What the program asked for.
        site, step: Of each call.
        basis: What the steps rest on.
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


def replay_planned(
    workload: Workload,  # noqa: ARG001 - all policies are called alike
    planned: Planned,
    conf: str = "",
    capacity: int | None = None,
    *,
    fraction: float | None = None,
    torch_version: str = _NEWEST,
    log: bool = False,
    policy: str = "plan",
) -> PlannedReplay:
    """Replays a new run of the program with its plan.

    Args:
        workload: What the plan was made from.
        planned: The plan.
        conf: Settings of the caching allocator that serves the rest.
        capacity: Bytes of the device; None: unlimited.
        fraction: Share of the device that the process may have.
        torch_version: Whose rules.
        log: Whether the allocator's entries are kept.
        policy: Name in the result.

    Raises:
        MemdiagError: The allocator refuses the settings.
    """
    found, out = _run(planned.workload, planned.num_before, planned, policy, conf, capacity, fraction, torch_version, log=log)
    return PlannedReplay(**vars(found), planned=told_of(planned, out))


def replay_bound(
    workload: Workload, conf: str = "", capacity: int | None = None, *, fraction: float | None = None, torch_version: str = _NEWEST,
    log: bool = False,
) -> PlannedReplay:  # fmt: skip
    """Replays ``workload`` with a range of its own for each request, given back as soon as it may be: what no allocator can be below of.

    Sizes are rounded up to 512 bytes, as all of PyTorch's allocators do. Arguments as of ``replay_planned``.
    """
    whole = _with_start(workload)
    of_pools = np.isin(whole.op, (w.POOL_BEGIN, w.POOL_END, w.POOL_RELEASE))
    whole = replace(whole, op=np.where(of_pools, w.NOTHING, whole.op).astype(np.int8))
    before = len(whole.op) - len(workload.op)
    return PlannedReplay(**vars(_run(whole, before, None, "bound", conf, capacity, fraction, torch_version, log=log)[0]))


def _run(
    workload: Workload, before: int, planned: Planned | None, policy: str, conf: str, capacity: int | None, fraction: float | None,
    version: str, *, log: bool,
) -> tuple[Replay, Array]:  # fmt: skip
    """Runs the machine; returns the replay and its raw results, which begin with the calls that make the start."""
    how = resolve(POLICIES[policy])
    rules = rules_for(how.BACKEND, version)
    numbers = Conf.parse(how.with_own(conf), how.BACKEND, version)
    rounded, segment_size = how.columns(workload.size, numbers, rules)
    size = workload.size.astype(np.int64)
    total = capacity
    for i in np.flatnonzero((workload.op == w.SET_FRACTION) | (workload.op == w.SET_TOTAL)).tolist():
        if workload.op[i] == w.SET_FRACTION:
            size[i], rounded[i] = limits(size[i] / 1e9, numbers, total, rules)
        elif rules.capacity_is_asked and capacity is not None:
            total = int(size[i])
    num_calls, num_streams, own = len(workload.op), max(len(workload.streams), 1), len(workload.pools)
    r, m = new_state(
        numbers, rules, capacity, num_streams, own + 1, DONE[workload.done], np.empty(0, np.int64), workload.no_split, turns_of(workload),
        workload.captured,
    )  # fmt: skip
    if fraction is not None:
        r[mem.LIMIT], r[mem.BAR] = limits(fraction, numbers, capacity, rules)
    limit = int(r[mem.LIMIT])
    pool = int(r[mem.POOLS]) + own * mem.ROW
    m[pool + mem.IS_PRIVATE], m[pool + mem.KNOWN], m[pool + mem.USERS] = 0, 1, 1  # nothing counts its ranges, nobody releases it

    k = np.zeros(s.NUM_STATE, np.int64)
    k[s.IS_ALONE], k[s.OWN_POOL], k[s.CYCLE] = planned is None, own, -1
    arenas = np.zeros((arena.NUM_ARENA, num_streams), np.int64)
    slots = np.empty((s.NUM_SLOT, 0), np.int64)
    cycle, site = np.zeros(num_calls, np.int64), np.full(num_calls, -1, np.int64)
    if planned is not None:
        slots = planned.script.slots.copy()
        begin = planned.script.begin
        k[s.BEGIN : s.BEGIN + s.NUM_SCRIPTS] = begin[:-1]
        k[s.POINTER : s.POINTER + s.NUM_SCRIPTS] = begin[:-1]
        k[s.END : s.END + s.NUM_SCRIPTS] = begin[1:]
        arenas[arena.A_HEIGHT], arenas[arena.A_PLANNED] = planned.script.heights, planned.script.planned
        for number, span in enumerate(planned.script.profile.spans):
            cycle[span.begin : span.end] = number + 1
        site = planned.site
    of_step = np.arange(planned.script.begin[s.STEP], planned.script.begin[-1]) if planned is not None else np.empty(0, np.int64)
    first, second = slots[s.SLOT_OFF, of_step], slots[s.SLOT_SECOND, of_step]
    by_place = np.stack([of_step[np.argsort(off, kind="stable")] for off in (first, np.where(second >= 0, second, first))])
    taken = np.zeros((num_streams, 2, 2 * slots.shape[1] + len(planned.requests.call) + 1 if planned is not None else 1), np.int64)
    entries = np.zeros((len(mem.LOG_COLUMNS), 4 * num_calls if log else 0), np.int64)
    r[mem.IS_LOGGED], r[mem.LOG_CAPACITY] = log, entries.shape[1]
    out = np.empty((machine.NUM_OUT, num_calls), np.int64)
    where = np.zeros(max(workload.num_tensors, 1), np.int64)
    pools = pools_of(workload, rules) if planned is None else planned.pool
    columns = [column.astype(np.int64) for column in (workload.op, workload.tensor, size, workload.stream, pools)]
    more = [column.astype(np.int64) for column in (site, cycle, rounded, segment_size)]
    while machine.run(r, m, entries, k, slots, arenas, taken, by_place, out, where, *columns, *more) < num_calls:
        m, entries = enlarge(r, m, entries)
    entries = entries[:, : r[mem.NUM_LOGGED]]
    entries[mem.LOG_CALL] = np.maximum(entries[mem.LOG_CALL] - before, -1)
    entries[mem.LOG_POOL][entries[mem.LOG_POOL] == own] = 0
    first = out[:, before - 1].copy() if before else np.zeros(machine.NUM_OUT, np.int64)

    def column(row: int, dtype: str = "int64", *, from_first: bool = False) -> Array:
        values: Array = (out[row, before:] - (first[row] if from_first else 0)).astype(dtype)
        return values

    found = Replay(
        policy=policy,
        conf=conf,
        torch_version=version,
        capacity_bytes=capacity,
        limit_bytes=limit if limit >= 0 else None,
        status=column(base.OUT_STATUS, "int8"),
        seg=column(base.OUT_SEG, "int32"),
        off=column(base.OUT_OFF),
        block=column(base.OUT_BLOCK),
        reserved=column(base.OUT_RESERVED),
        allocated=column(base.OUT_ALLOCATED),
        active=column(base.OUT_ACTIVE),
        requested=column(base.OUT_REQUESTED),
        retries=column(base.OUT_RETRIES, "int32", from_first=True),
        ooms=column(base.OUT_OOMS, "int32"),  # the start may not fit
        device_allocs=column(base.OUT_DEVICE_ALLOCS, "int32", from_first=True),
        device_frees=column(base.OUT_DEVICE_FREES, "int32", from_first=True),
        bases=segments(r, m),
        log=dict(zip(mem.LOG_COLUMNS, entries, strict=True)) if log else None,
    )
    return found, out
