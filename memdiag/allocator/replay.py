"""Replays a workload through a policy: what would have happened under other settings, another version, on another card."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.engine.loop import run
from memdiag.allocator.engine.memory import LOG_ALL, LOG_NOTHING, Nodes
from memdiag.allocator.engine.model import Model
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.lenders import Lenders, changes_of
from memdiag.allocator.result import Replay
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules, rules_for
from memdiag.allocator.workload import ALLOC, POOL_BEGIN, POOL_END, Workload
from memdiag.errors import MemdiagError
from memdiag.registry import POLICIES
from memdiag.trace.table import Array


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
        bases: Addresses that the driver gave for the ranges obtained while recording, in order (for ties between equal
            free blocks). As
            two rows: with what each was for, ``(2 * pool + small) * number of streams + stream``.
        keep_start: Begins with the ranges and blocks of ``workload.start`` as they were; False: its tensors are allocated first, by
            address, under the settings of the replay. In the log these are calls -1; if one of them fails, ``ooms`` begins above 0.

    Raises:
        MemdiagError: Unknown policy, or settings that the allocator refuses.
    """
    if policy not in POLICIES:
        raise MemdiagError(f"there is no policy {policy}", f"choose from {', '.join(POLICIES)}")
    how = POLICIES[policy]
    if hasattr(how, "marks"):
        raise MemdiagError(
            f"policy {policy} goes by what the program was doing, which a workload does not tell",
            "memdiag simulate knows",
        )
    rules = rules_for(how.BACKEND, torch_version)
    numbers = Conf.parse(how.with_own(conf), how.BACKEND, torch_version)
    before = 0
    if len(workload.start.base) and not keep_start:
        num_calls = len(workload.op)
        workload = with_start_allocated(workload)
        before = len(workload.op) - num_calls
    model = Model.of(
        workload,
        numbers,
        rules,
        how.columns(workload.size, numbers, rules),
        pools_of(workload, rules),
        capacity=capacity,
        fraction=fraction,
        log_level=LOG_ALL if log else LOG_NOTHING,
        first=before,
        bases=bases,
    )
    lenders = Lenders(workload.pools, _pools(model)) if len(workload.stand_in) > 1 else None
    if lenders:
        for end in changes_of(workload):
            model.run(run, until=end)
            lenders.put_in_order(_pools(model))
    model.run(run)
    return Replay(policy=policy, conf=conf, torch_version=torch_version, capacity_bytes=capacity, **model.columns())


def _pools(model: Model) -> Nodes:
    return model.nodes[model.state.pools : model.state.streams]


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
