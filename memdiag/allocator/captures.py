"""Which private pools are cut, and when what asks for memory in them captures a graph: neither is in a recording, but what follows is.

In a capture nothing is waited for, so that no cached memory is given back where the driver has no more; in a pool that is not cut a block
is a whole segment. The pool of a graph's own is used in captures only. A pool that was made by itself can be used in captures and outside
of them; a capture is a run of requests with none of another pool between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from memdiag.allocator.workload import ALLOC, CAPTURE, Workload
from memdiag.trace.table import Array


def kinds_of_pools(workload: Workload, event: int) -> Iterator[Workload]:
    """Yields what else the recording may mean if a replay differs at the request that is ``event``."""
    here = np.flatnonzero((workload.op == ALLOC) & (workload.row == event))
    pool = int(workload.pool[here[0]]) if len(here) else 0
    if pool <= 0:
        return
    if pool not in workload.no_split:
        yield replace(workload, no_split=workload.no_split | {pool})
    if not ((workload.op == CAPTURE) & (workload.pool == pool)).any():
        yield replace(workload, captured=workload.captured ^ {pool})
    call = int(here[0])
    first, last = _run_of_requests(workload, call)
    yield _with_other_kind(workload, first, last)
    if first < call:
        yield _with_other_kind(workload, call, last)
    if call < last:
        yield _with_other_kind(workload, first, call)


def is_captured(workload: Workload, call: int) -> bool:
    """Whether a graph is thought to be captured in the pool of the request ``call``."""
    pool = workload.pool[call]
    said = np.flatnonzero((workload.op[:call] == CAPTURE) & (workload.pool[:call] == pool))
    return bool(workload.size[said[-1]]) if len(said) else int(pool) in workload.captured


def _run_of_requests(workload: Workload, call: int) -> tuple[int, int]:
    """Returns the first and the last of the requests (calls) around ``call`` between which there is none of another pool."""
    requests = np.flatnonzero(workload.op == ALLOC)
    at = int(np.searchsorted(requests, call))
    others = np.flatnonzero(workload.pool[requests] != workload.pool[call])
    k = int(np.searchsorted(others, at))
    first = int(others[k - 1]) + 1 if k else 0
    last = int(others[k]) - 1 if k < len(others) else len(requests) - 1
    return int(requests[first]), int(requests[last])


def _with_other_kind(workload: Workload, first: int, last: int) -> Workload:
    """Says of the requests from ``first`` to ``last`` the opposite of what is thought of the first one."""
    kind, pool = is_captured(workload, first), workload.pool[first]
    call = np.arange(len(workload.op))
    kept = ~((workload.op == CAPTURE) & (workload.pool == pool) & (call >= first) & (call <= last))

    def put(column: Array, at_first: int, behind_last: int) -> Array:
        parts = (column[:first], [at_first], column[first : last + 1][kept[first : last + 1]], [behind_last], column[last + 1 :])
        return np.concatenate([np.asarray(part, column.dtype) for part in parts])

    rows = int(workload.row[first - 1]) if first else -1, int(workload.row[last])
    return replace(
        workload,
        op=put(workload.op, CAPTURE, CAPTURE),
        tensor=put(workload.tensor, -1, -1),
        size=put(workload.size, int(not kind), int(is_captured(workload, last))),
        stream=put(workload.stream, -1, -1),
        pool=put(workload.pool, pool, pool),
        row=put(workload.row, *rows),
    )
