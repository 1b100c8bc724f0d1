"""The common part of two recordings of one program: the same allocations and frees in the same order.

A prediction made from one run can be verified against another run only within the calls that both runs share. A run
that failed with an out-of-memory error stops there, and its rerun continues.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.workload import ALLOC, FREE, FREE_REQUESTED, Workload
from memdiag.trace.layout import Layout
from memdiag.trace.table import Array


def shared_calls(one: Workload, other: Workload, first_failed: int, layout: Layout) -> tuple[int, int]:
    """Returns how many leading calls of each run are common: up to the last allocation or free that both have.

    Only calls of the program itself are compared: allocations with their sizes and streams, and frees of the same
    tensors. The allocator decides when a free completes and when cached memory is released, so those are not compared.

    Args:
        one: The run that may have failed.
        other: The run to compare it with.
        first_failed: Tensors of ``one`` from this number on are failed requests, for which a recording has only the
            rounded size.
        layout: The rounding rules of ``one``.
    """
    rows_one, rows_other = _own(one), _own(other)
    count = min(len(rows_one), len(rows_other))
    a, b = rows_one[:count], rows_other[:count]
    frees_one, frees_other = one.op[a] != ALLOC, other.op[b] != ALLOC
    same = frees_one == frees_other
    same_block = layout.round_size(one.size[a]) == layout.round_size(other.size[b])
    same &= frees_one | (one.size[a] == other.size[b]) | ((one.tensor[a] >= first_failed) & same_block)
    same &= _births(one, a) == _births(other, b)
    same &= _handles(one, a) == _handles(other, b)
    different = np.flatnonzero(~same)
    end = int(different[0]) if len(different) else count
    if end == 0:
        return 0, 0
    return int(a[end - 1]) + 1, int(b[end - 1]) + 1


def _own(workload: Workload) -> Array:
    """Returns the rows of the calls that the program itself made."""
    return np.flatnonzero(np.isin(workload.op, (ALLOC, FREE, FREE_REQUESTED)))


def _births(workload: Workload, rows: Array) -> Array:
    """Returns the allocation (by order) that each call refers to, because tensor rows differ between runs."""
    born = np.full(workload.num_tensors, -1, np.int64)
    made = rows[workload.op[rows] == ALLOC]
    born[workload.tensor[made]] = np.arange(len(made))
    before = np.flatnonzero(born < 0)
    born[before] = -1 - np.arange(len(before))
    return born[workload.tensor[rows]]


def _handles(workload: Workload, rows: Array) -> Array:
    """Returns streams by their order of first use, because their handles are addresses that differ between runs."""
    used = workload.stream[rows]
    numbers = np.full(int(used.max(initial=-1)) + 2, -1, np.int32)
    _, first = np.unique(used, return_index=True)
    for number, stream in enumerate(used[np.sort(first)]):
        numbers[stream] = number
    return numbers[used]
