"""Replays a workload through MindSpeed's lifetime-segregated pools, with its own predictor or with perfect knowledge.

What the original does not have is not here either: it installs no ``record_stream``, so that a block is free when its tensor is freed,
whatever other streams do; private pools are unknown to it, so that everything lands in the four pools.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine.state import enlarge, segments
from memdiag.allocator.lifecycle import machine, pools, tables
from memdiag.allocator.lifecycle.conf import Settings
from memdiag.allocator.lifecycle.marks import FORWARD_END, PRECISE_BEGIN, PRECISE_END, STEP_END, Marks, Windows
from memdiag.allocator.lifecycle.report import Lifecycle
from memdiag.allocator.result import Replay
from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

_MOST_SIZE = 1 << 60


@dataclass(frozen=True)
class LifecycleReplay(Replay):
    """A replay, and what the pools and the predictor did; ``lifecycle`` is never None."""

    lifecycle: Lifecycle | None = None


def replay_lifecycle(
    workload: Workload,
    marks: Marks,
    conf: str = "",
    capacity: int | None = None,
    *,
    fraction: float | None = None,
    alr_max_bytes: int | None = None,
    torch_version: str = "",
    log: bool = False,
    is_oracle: bool = False,
    policy: str = "",
) -> LifecycleReplay:
    """Replays ``workload`` through the four pools.

    Args:
        workload: What the program asked for. Tensors that were there at the start are made first, by address, as long-lived.
        marks: When the hooks ran.
        conf: Text of PYTORCH_NPU_ALLOC_CONF, for MindSpeed's own parser.
        capacity: Bytes of the device; None: unlimited (then the look at what is left never holds back new memory).
        fraction: Share of the device that the process may have.
        alr_max_bytes: The variable ALR_MAX.
        torch_version: Said in the result; the rules are the same in all.
        log: Whether the allocator's entries are kept.
        is_oracle: Lifetimes are not predicted but known: a tensor is long-lived if it survives its window.
        policy: Name in the result; "": "lifecycle" or "lifetime-oracle".

    Raises:
        MemdiagError: ``conf`` is not one that the allocator starts with.
    """
    settings = Settings.parse(conf, alr_max_bytes)
    calls = _with_start(workload, marks)
    deaths, windows = calls.deaths(), Windows.of(calls.marks, len(calls.op))
    told = (deaths >= windows.ends).astype(np.int64) if is_oracle else np.empty(0, np.int64)
    sizes, size_number = np.unique(np.where(calls.op == w.ALLOC, calls.size, 0), return_inverse=True)
    rounded_of, rounded_number = np.unique(-(-sizes // pools.GRAIN) * pools.GRAIN, return_inverse=True)
    r, m, kept = pools.empty(settings, capacity, fraction, max(len(workload.streams), 1))
    limit = int(r[mem.LIMIT])
    entries = np.zeros((len(mem.LOG_COLUMNS), 4 * len(calls.op) if log else 4096), np.int64)
    r[mem.IS_LOGGED], r[mem.LOG_CAPACITY] = 1, entries.shape[1]
    out = np.empty((machine.NUM_OUT, len(calls.op)), np.int64)
    life = np.zeros((max(calls.num_tensors, 1), machine.NUM_LIFE), np.int64)
    op, tensor, size, stream = (column.astype(np.int64) for column in (calls.op, calls.tensor, calls.size, calls.stream))
    numbers = rounded_number[size_number].astype(np.int64)
    made = np.append(0, np.cumsum(calls.op == w.ALLOC))
    k = tables.fresh(kept, (sizes, rounded_of), (calls.most_in(made, FORWARD_END), calls.most_in(made, STEP_END)), int(made[-1]))
    columns = (op, tensor, size, stream, rounded_of[numbers], size_number.astype(np.int64), numbers, told)
    hooked = (calls.marks.at, calls.marks.kind.astype(np.int64))
    while machine.run(r, m, entries, k, out, life, *columns, *hooked, log) < len(op):
        m, entries = enlarge(r, m, entries)
    bases = segments(r, m)
    entries = entries[:, : r[mem.NUM_LOGGED]]
    first = calls.num_made
    before = out[:, first - 1] if first else np.zeros(machine.NUM_OUT, np.int64)

    def counted(row: int) -> Array:
        counts: Array = (out[row, first:] - before[row]).astype(np.int32)
        return counts

    return LifecycleReplay(
        policy=policy or ("lifetime-oracle" if is_oracle else "lifecycle"),
        conf=conf,
        torch_version=torch_version,
        capacity_bytes=capacity,
        limit_bytes=limit if limit >= 0 else None,
        status=out[machine.OUT_STATUS, first:].astype(np.int8),
        seg=out[machine.OUT_SEG, first:].astype(np.int32),
        off=out[machine.OUT_OFF, first:],
        block=out[machine.OUT_BLOCK, first:],
        reserved=out[machine.OUT_RESERVED, first:],
        allocated=out[machine.OUT_ALLOCATED, first:],
        active=out[machine.OUT_ALLOCATED, first:],
        requested=out[machine.OUT_REQUESTED, first:],
        retries=counted(machine.OUT_RETRIES),
        ooms=out[machine.OUT_OOMS, first:].astype(np.int32),  # the start may not fit
        device_allocs=counted(machine.OUT_DEVICE_ALLOCS),
        device_frees=counted(machine.OUT_DEVICE_FREES),
        bases=bases,
        log=_log(entries, first) if log else None,
        pools=pools.IDS,
        lifecycle=Lifecycle.of(out, entries, pools.of_segments(r, m), deaths, windows, first=first, marks=marks),
    )


@dataclass(frozen=True)
class _Calls:
    """The calls to replay, those that make what was there at the start first (``num_made``), and the marks among them."""

    op: Array
    tensor: Array
    size: Array
    stream: Array
    num_tensors: int
    num_made: int
    marks: Marks

    def deaths(self) -> Array:
        """Returns for each allocation the call that frees its tensor; the number of calls: none does, or it is no allocation."""
        count = len(self.op)
        died = np.full(self.num_tensors + 1, count, np.int64)
        frees = np.flatnonzero(((self.op == w.FREE) | (self.op == w.FREE_REQUESTED)) & (self.tensor >= 0))[::-1]
        died[self.tensor[frees]] = frees  # the first of several is written last
        deaths: Array = np.where(self.op == w.ALLOC, died[self.tensor], count)
        return deaths

    def most_in(self, made: Array, end: int) -> int:
        """Returns how many allocations lie between two marks of a kind at most, given how many there are before each call."""
        at = np.concatenate(([0], np.minimum(self.marks.at[self.marks.kind == end], len(self.op)), [len(self.op)]))
        return int(np.diff(made[at]).max(initial=0))


def _with_start(workload: Workload, marks: Marks) -> _Calls:
    """Returns the calls with those that make the tensors of the start in front, as in a phase in which everything is long-lived."""
    start = workload.start
    rows = np.flatnonzero(~start.block_pending)  # without deferral, what waits for a stream has been free for long
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
    return _Calls(
        op=np.concatenate((np.full(num, w.ALLOC, np.int8), workload.op)),
        tensor=np.concatenate((tensor, workload.tensor)),
        size=np.concatenate((asked, size)).astype(np.int64),
        stream=np.concatenate((start.stream[start.block_range[rows]], workload.stream)),
        num_tensors=workload.num_tensors + int(unnamed.sum()),
        num_made=num,
        marks=Marks(at, kind, marks.bases, marks.hooks),
    )


def _log(entries: Array, first: int) -> dict[str, Array]:
    """Returns the entries as columns, those of what was there at the start as of call -1."""
    columns = dict(zip(mem.LOG_COLUMNS, entries, strict=True))
    columns["call"] = np.maximum(columns["call"] - first, -1)
    return columns
