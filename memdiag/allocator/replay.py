"""Replays a workload through a policy: what would have happened under other settings, another version, on another card."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.conf import Conf
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.lenders import Lenders, changes_of, turns_of

from memdiag.allocator.engine.run import (  # isort: skip
    NUM_OUT, OUT_ACTIVE, OUT_ALLOCATED, OUT_BLOCK, OUT_DEVICE_ALLOCS, OUT_DEVICE_FREES, OUT_OFF, OUT_OOMS, OUT_REQUESTED, OUT_RESERVED,
    OUT_RETRIES, OUT_SEG, OUT_STATUS, run,
)  # fmt: skip
from memdiag.allocator.engine.start import load_start, with_start_allocated
from memdiag.allocator.engine.state import enlarge, limits, new_state, segments
from memdiag.allocator.result import Replay
from memdiag.allocator.rules import Rules, rules_for
from memdiag.allocator.workload import ALLOC, POOL_BEGIN, POOL_END, SET_FRACTION, SET_TOTAL, Workload
from memdiag.errors import MemdiagError
from memdiag.registry import POLICIES, resolve
from memdiag.trace.table import Array

# How the machine learns that other streams are through, by ``Workload.done``.
DONE = {"now": mem.BY_NEXT_CALL, "manual": mem.BY_HAND, "recorded": mem.AS_RECORDED}


def replay(
    workload: Workload,
    policy: str,
    *,
    conf: str = "",
    torch_version: str = "2.13",
    capacity: int | None = None,
    fraction: float | None = None,
    log: bool = False,
    bases: Array | None = None,
    keep_start: bool = True,
) -> Replay:
    """Replays ``workload``.

    Args:
        policy: Key of ``registry.POLICIES``.
        conf: Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; "": all defaults.
        torch_version: Whose rules hold; for NPU policies the version of torch_npu.
        capacity: Bytes of the device; None: unlimited.
        fraction: Memory fraction set before the first call.
        log: Whether to keep the allocator's own entries.
        bases: Addresses that the driver gave for the ranges obtained while recording, in order (for ties between equal free blocks). As
            two rows: with what each was for, ``(2 * pool + small) * number of streams + stream``.
        keep_start: Begins with the ranges and blocks of ``workload.start`` as they were; False: its tensors are allocated first, by
            address, under the settings of the replay. In the log these are calls -1; if one of them fails, ``ooms`` begins above 0.

    Raises:
        MemdiagError: Unknown policy, or settings that the allocator refuses.
    """
    if policy not in POLICIES:
        raise MemdiagError(f"there is no policy {policy}", f"choose from {', '.join(POLICIES)}")
    how = resolve(POLICIES[policy])
    if hasattr(how, "marks"):
        raise MemdiagError(f"policy {policy} goes by what the program was doing, which a workload does not tell", "memdiag simulate knows")
    rules = rules_for(how.BACKEND, torch_version)
    numbers = Conf.parse(how.with_own(conf), how.BACKEND, torch_version)
    before = 0
    if len(workload.start.base) and not keep_start:
        num_calls = len(workload.op)
        workload = with_start_allocated(workload)
        before = len(workload.op) - num_calls
    rounded, segment_size = how.columns(workload.size, numbers, rules)
    size = workload.size.astype(np.int64)
    total = capacity
    for i in np.flatnonzero((workload.op == SET_FRACTION) | (workload.op == SET_TOTAL)).tolist():
        if workload.op[i] == SET_FRACTION:
            size[i], rounded[i] = limits(size[i] / 1e9, numbers, total, rules)
        elif rules.capacity_is_asked and capacity is not None:
            total = int(size[i])

    num_calls = len(workload.op)
    given = np.empty(0, np.int64) if bases is None else bases.astype(np.int64)
    r, m = new_state(
        numbers, rules, capacity, max(len(workload.streams), 1), len(workload.pools), DONE[workload.done], given, workload.no_split,
        turns_of(workload), workload.captured,
    )  # fmt: skip
    if fraction is not None:
        r[mem.LIMIT], r[mem.BAR] = limits(fraction, numbers, capacity, rules)
    where = np.zeros(max(workload.num_tensors, 1), np.int64)
    if len(workload.start.base):
        m = load_start(r, m, where, workload.start, rules.ties)
    entries = np.empty((len(mem.LOG_COLUMNS), 4 * num_calls if log else 0), np.int64)
    r[mem.IS_LOGGED], r[mem.LOG_CAPACITY] = log, entries.shape[1]
    out = np.empty((NUM_OUT, num_calls), np.int64)
    columns = [
        column.astype(np.int64)
        for column in (workload.op, workload.tensor, size, workload.stream, pools_of(workload, rules), rounded, segment_size)
    ]
    limit = int(r[mem.LIMIT])
    m, entries = _run(workload, r, m, entries, out, where, columns)
    entries = entries[:, : r[mem.NUM_LOGGED]]
    if before:
        out, entries = _from_call(before, out, entries)
    return _result(policy, conf, torch_version, capacity, limit, out, segments(r, m), entries if log else None)


def _run(workload: Workload, r: Array, m: Array, entries: Array, out: Array, where: Array, columns: list[Array]) -> tuple[Array, Array]:
    """Makes all calls; returns memory and log, which may have had to grow."""
    lenders = Lenders(workload.pools, _pool_rows(r, m)) if len(workload.stand_in) > 1 else None
    for end in [*(changes_of(workload) if lenders else ()), len(workload.op)]:
        r[mem.UNTIL] = end
        while run(r, m, entries, out, where, *columns) < end:
            m, entries = enlarge(r, m, entries)
        if lenders:
            lenders.put_in_order(_pool_rows(r, m))
    return m, entries


def _pool_rows(r: Array, m: Array) -> Array:
    return m[r[mem.POOLS] : r[mem.STREAMS]].reshape(-1, mem.ROW)


def _from_call(before: int, out: Array, entries: Array) -> tuple[Array, Array]:
    """Leaves out the calls that stand for the start. A request of theirs that failed still counts: the start did not fit."""
    for row in (OUT_RETRIES, OUT_DEVICE_ALLOCS, OUT_DEVICE_FREES):
        out[row] -= out[row, before - 1]
    entries[mem.LOG_CALL] = np.maximum(entries[mem.LOG_CALL] - before, -1)
    return out[:, before:], entries


def pools_of(workload: Workload, rules: Rules) -> Array:
    """The pool of every request: as recorded, else that of the scope that is open for its stream, else the default pool."""
    pool = workload.pool.copy()
    unknown = (workload.op == ALLOC) & (pool < 0)
    marks = np.flatnonzero((workload.op == POOL_BEGIN) | (workload.op == POOL_END)).tolist()
    scopes: list[tuple[int, int]] = []
    for at, end in zip(marks, [*marks, len(pool)][1:], strict=True):
        which = int(pool[at])
        if workload.op[at] == POOL_BEGIN:
            scopes.append((which, int(workload.stream[at])))
        else:
            last = next((k for k in reversed(range(len(scopes))) if scopes[k][0] == which), None)
            if last is not None:
                del scopes[last]
        for which, stream in reversed(scopes) if rules.outermost_scope else scopes:  # the last to be written counts
            rows = unknown[at:end] & ((workload.stream[at:end] == stream) | (stream < 0))
            pool[at:end][rows] = which
    return np.where((workload.op == ALLOC) & (pool < 0), 0, pool)


def _result(
    policy: str, conf: str, version: str, capacity: int | None, limit: int, out: Array, bases: Array, entries: Array | None
) -> Replay:
    return Replay(
        policy=policy,
        conf=conf,
        torch_version=version,
        capacity_bytes=capacity,
        limit_bytes=limit if limit >= 0 else None,
        status=out[OUT_STATUS].astype(np.int8),
        seg=out[OUT_SEG].astype(np.int32),
        off=out[OUT_OFF],
        block=out[OUT_BLOCK],
        reserved=out[OUT_RESERVED],
        allocated=out[OUT_ALLOCATED],
        active=out[OUT_ACTIVE],
        requested=out[OUT_REQUESTED],
        retries=out[OUT_RETRIES].astype(np.int32),
        ooms=out[OUT_OOMS].astype(np.int32),
        device_allocs=out[OUT_DEVICE_ALLOCS].astype(np.int32),
        device_frees=out[OUT_DEVICE_FREES].astype(np.int32),
        bases=bases,
        log=None if entries is None else dict(zip(mem.LOG_COLUMNS, entries, strict=True)),
    )
