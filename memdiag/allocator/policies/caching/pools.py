"""The pool of every request: as recorded, or from the scopes of private pools around it."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import ALLOC, POOL_BEGIN, POOL_END, Workload
from memdiag.trace.table import Array


def pools_of(workload: Workload, rules: Rules) -> Array:
    """Returns the pool of every request: as recorded, else of the open scope of its stream, else the default pool."""
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
        for which, stream in reversed(scopes) if rules.outermost_scope else scopes:  # the last value written applies
            rows = unknown[at:end] & ((workload.stream[at:end] == stream) | (stream < 0))
            pool[at:end][rows] = which
    return np.where((workload.op == ALLOC) & (pool < 0), 0, pool)
