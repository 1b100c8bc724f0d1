"""Replays a workload through MindSpeed's lifetime-segregated pools, with its own predictor or with perfect knowledge.

The model lacks the features that MindSpeed's allocator lacks. It has no ``record_stream``, so a block is free when its
tensor is freed, even if other streams still use it. It has no private pools, so all requests go to the four pools.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.engine.memory import LOG_ALL, LOG_SEGMENTS
from memdiag.allocator.engine.model import Model, Setup
from memdiag.allocator.policies.lifecycle import loop, pools, tables
from memdiag.allocator.policies.lifecycle.conf import MindSpeedSettings
from memdiag.allocator.policies.lifecycle.marks import (
    FORWARD_END,
    PRECISE_BEGIN,
    PRECISE_END,
    STEP_END,
    HookMarks,
    HookWindows,
)
from memdiag.allocator.policies.lifecycle.report import Lifecycle
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.workload import Workload
from memdiag.sizes.cuda import MIN_BLOCK
from memdiag.trace.table import Array

_MOST_SIZE = 1 << 60
# The allocator tracks no stream uses and no private pools: freeing a tensor frees its block.
_OPS = np.zeros(len(w.OPS), np.int8)
_OPS[[w.ALLOC, w.EMPTY_CACHE, w.SET_FRACTION, w.EXTERNAL, w.SET_TOTAL]] = (
    w.ALLOC,
    w.EMPTY_CACHE,
    w.SET_FRACTION,
    w.EXTERNAL,
    w.SET_TOTAL,
)
_OPS[[w.FREE, w.FREE_REQUESTED]] = w.FREE
_DEFAULTS = Scenario("lifecycle")


@dataclass(frozen=True)
class LifecycleReplay(Replay):
    """A replay, and the results of the pools and the predictor; ``lifecycle`` is never None."""

    lifecycle: Lifecycle | None = None


def replay_lifecycle(
    workload: Workload,
    marks: HookMarks,
    scenario: Scenario = _DEFAULTS,
    *,
    alr_max_bytes: int | None = None,
    log: bool = False,
    is_oracle: bool = False,
) -> LifecycleReplay:
    """Replays ``workload`` through the four pools.

    Args:
        workload: The requests of the program. Tensors from before the start are allocated first, by address, as
            long-lived.
        marks: Calls at which the hooks ran.
        scenario: Settings (PYTORCH_NPU_ALLOC_CONF, for MindSpeed's own parser) and device. With unlimited capacity, the
            check of free memory never refuses new memory. Policy and version are only names for the result.
        alr_max_bytes: The variable ALR_MAX.
        log: Whether to keep the allocator's log.
        is_oracle: Whether lifetimes are known instead of predicted: a tensor is long-lived if it survives its window.

    Raises:
        MemdiagError: The allocator does not start with these settings.
    """
    settings = MindSpeedSettings.parse(scenario.conf, alr_max_bytes)
    calls = _with_start(workload, marks)
    deaths, windows = calls.deaths(), HookWindows.of(calls.marks, len(calls.op))
    lifetime = (deaths >= windows.ends).astype(np.int64) if is_oracle else np.empty(0, np.int64)
    sizes, size_number = np.unique(np.where(calls.op == w.ALLOC, calls.size, 0), return_inverse=True)
    rounded_of, rounded_number = np.unique(-(-sizes // MIN_BLOCK) * MIN_BLOCK, return_inverse=True)
    numbers = rounded_number[size_number].astype(np.int64)
    rounded, num_calls = rounded_of[numbers], len(calls.op)
    work = Workload(
        op=_OPS[calls.op],
        tensor=calls.tensor,
        size=calls.size,
        stream=calls.stream,
        pool=np.zeros(num_calls, np.int32),
        row=np.arange(num_calls),
        num_rows=num_calls,
        num_tensors=calls.num_tensors,
        streams=workload.streams,
        pools=pools.IDS,
        done="now",
    )
    model = Model.of(
        work,
        Setup(
            pools.conf_of(settings),
            pools.RULES,
            scenario.capacity_bytes,
            scenario.fraction,
            LOG_ALL if log else LOG_SEGMENTS,
            num_own_results=loop.NUM_OWN_RESULTS,
        ),
        (rounded, rounded),
        work.pool,
        first=calls.num_made,
    )
    model.out[loop.OUT_LONG], model.out[loop.OUT_LEVEL] = 0, -1
    made = np.append(0, np.cumsum(calls.op == w.ALLOC))
    own = tables.MindSpeed(
        pools=pools.add_pools(model, settings),
        **tables.fresh(
            (sizes, rounded_of), (calls.most_in(made, FORWARD_END), calls.most_in(made, STEP_END)), int(made[-1])
        ),
        recorded=np.zeros(max(calls.num_tensors, 1), tables.ENTRY_OF),
        size_number=size_number.astype(np.int64),
        rounded_number=numbers,
        lifetime=lifetime,
        mark_at=calls.marks.at,
        mark_kind=calls.marks.kind.astype(np.int64),
    )
    model.run(loop.run, own)
    lifecycle = Lifecycle.of(model, deaths, windows, marks=marks)
    return LifecycleReplay.from_columns(
        scenario,
        model.columns(),
        pools=pools.IDS,
        lifecycle=lifecycle,
    )


@dataclass(frozen=True)
class _HookedCalls:
    """The calls to replay, and their marks; the first ``num_made`` calls recreate the initial state."""

    op: Array
    tensor: Array
    size: Array
    stream: Array
    num_tensors: int
    num_made: int
    marks: HookMarks

    def deaths(self) -> Array:
        """Returns, for each allocation, the call that frees its tensor.

        For other calls, and for allocations without a free, the value is the number of calls.
        """
        count = len(self.op)
        died = np.full(self.num_tensors + 1, count, np.int64)
        frees = np.flatnonzero(((self.op == w.FREE) | (self.op == w.FREE_REQUESTED)) & (self.tensor >= 0))[::-1]
        died[self.tensor[frees]] = frees  # written in reverse order, so that the first of several frees remains
        deaths: Array = np.where(self.op == w.ALLOC, died[self.tensor], count)
        return deaths

    def most_in(self, made: Array, end: int) -> int:
        """Returns the largest number of allocations between two marks of a kind; ``made`` has the count before each."""
        at = np.concatenate(([0], np.minimum(self.marks.at[self.marks.kind == end], len(self.op)), [len(self.op)]))
        return int(np.diff(made[at]).max(initial=0))


def _with_start(workload: Workload, marks: HookMarks) -> _HookedCalls:
    """Returns the calls, preceded by allocations of the initial tensors in a phase in which all are long-lived."""
    start = workload.start
    rows = np.flatnonzero(~start.block_pending)  # without deferred frees, pending blocks are already free
    address = start.base[start.block_range[rows]] + start.block_off[rows]
    rows = rows[np.argsort(address, kind="stable")]
    num = len(rows)
    tensor = start.block_tensor[rows].astype(np.int32)
    unnamed = tensor < 0
    tensor[unnamed] = workload.num_tensors + np.arange(int(unnamed.sum()), dtype=np.int32)
    asked = np.where(start.block_requested[rows] > 0, start.block_requested[rows], start.block_size[rows])
    size = np.where(workload.op == w.ALLOC, np.clip(workload.size, 0, _MOST_SIZE), workload.size)
    at, kind = marks.at + num, marks.kind
    if num:
        at = np.concatenate((np.array([0, num], np.int64), at))
        kind = np.concatenate((np.array([PRECISE_BEGIN, PRECISE_END], np.int8), kind))
    return _HookedCalls(
        op=np.concatenate((np.full(num, w.ALLOC, np.int8), workload.op)),
        tensor=np.concatenate((tensor, workload.tensor)),
        size=np.concatenate((asked, size)).astype(np.int64),
        stream=np.concatenate((start.stream[start.block_range[rows]], workload.stream)),
        num_tensors=workload.num_tensors + int(unnamed.sum()),
        num_made=num,
        marks=HookMarks(at, kind, marks.bases, marks.hooks),
    )
