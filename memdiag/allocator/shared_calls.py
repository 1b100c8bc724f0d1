"""How far two recordings of one program are the same: the same allocations and frees in the same order.

A prediction made from one run can be held against another only as far as both runs asked for the same; a run that died of an
out-of-memory error stops there, and its rerun goes on.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.workload import ALLOC, FREE, FREE_REQUESTED, Workload
from memdiag.trace.table import Array


def shared_calls(one: Workload, other: Workload) -> tuple[int, int]:
    """Returns how many leading calls of each are the common part: it ends after the last allocation or free that both have.

    Compared are what the program itself does: allocations with their sizes and streams, and frees of the same ones. When a free is
    complete, and when cached memory is given back, is the allocator's affair.
    """
    rows_one, rows_other = _own(one), _own(other)
    count = min(len(rows_one), len(rows_other))
    a, b = rows_one[:count], rows_other[:count]
    frees_one, frees_other = one.op[a] != ALLOC, other.op[b] != ALLOC
    same = frees_one == frees_other
    same &= frees_one | (one.size[a] == other.size[b])
    same &= one.tensor[a] == other.tensor[b]
    same &= _handles(one, a) == _handles(other, b)
    different = np.flatnonzero(~same)
    end = int(different[0]) if len(different) else count
    if end == 0:
        return 0, 0
    return int(a[end - 1]) + 1, int(b[end - 1]) + 1


def _own(workload: Workload) -> Array:
    """Rows of the calls that the program itself made."""
    return np.flatnonzero(np.isin(workload.op, (ALLOC, FREE, FREE_REQUESTED)))


def _handles(workload: Workload, rows: Array) -> Array:
    """Streams by their order of first use: handles are addresses, and differ from run to run."""
    used = workload.stream[rows]
    numbers = np.full(int(used.max(initial=-1)) + 2, -1, np.int32)
    _, first = np.unique(used, return_index=True)
    for number, stream in enumerate(used[np.sort(first)]):
        numbers[stream] = number
    return numbers[used]
