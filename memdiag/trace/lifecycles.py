"""Pairs events into lifecycles: finds the allocation of each free, and the blocks from before the trace.

A free of an address that the trace never allocated belongs to a block from before the trace. So does a block of the
final state without any event. A second free of the same allocation, or an allocation on a live address, is impossible:
it is counted as an anomaly and not used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.trace.compiled import njit
from memdiag.trace.schema import ALLOC, FREE_COMPLETED, FREE_REQUESTED
from memdiag.trace.table import Array

# State of an address while the events are walked.
_NEVER, _LIVE, _PENDING, _GONE = range(4)
# Indices into the vector of anomalies.
DOUBLE_FREE, UNMATCHED_FREE, ALLOC_ON_LIVE, NUM_PAIRING = range(4)


class Lifecycles(NamedTuple):
    """Times and places of the tensors. A place is the index of an address among all start addresses of blocks.

    Attributes:
        place: Sorted addresses.
        tensor_of: Tensor of each event (int32, -1: none).
        tensor_place: Place of each tensor; those from before the trace come first, in order of address.
        alloc_at, requested_at, completed_at: Events of each tensor (-1: before the trace, number of events: not in it).
        anomalies: Their numbers, at the positions DOUBLE_FREE, UNMATCHED_FREE and ALLOC_ON_LIVE.
    """

    place: Array
    tensor_of: Array
    tensor_place: Array
    alloc_at: Array
    requested_at: Array
    completed_at: Array
    anomalies: Array


@njit(plain_seconds=2e-6)
def pair(
    action: Array, key: Array, num_keys: int, final_state: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Pairs allocations and frees.

    Args:
        action: Codes of the events.
        key: int32 per event: index of the address, or -1 if the event is not an alloc or free.
        num_keys: Number of addresses.
        final_state: int8 per address: state of its block in the file's final state, or 0 without a block.

    Returns:
        Tensor of each event (int32, -1: none); key, alloc_at, free_requested_at, free_completed_at of each tensor
        (len(action): not in the trace, -1: before it); anomalies. Tensors from before the trace come first, in no
        particular order.
    """
    n = len(action)
    state = np.zeros(num_keys, np.int8)
    # First pass: find the addresses that hold a block before the trace. Their first event is a free, or they have no
    # event but a block at the end.
    before = np.zeros(num_keys, np.int8)
    for i in range(n):
        k = key[i]
        if k >= 0 and state[k] == _NEVER:
            state[k] = _GONE
            if action[i] == FREE_REQUESTED:
                before[k] = _LIVE
            elif action[i] == FREE_COMPLETED:
                before[k] = _PENDING
    num_before = 0
    num_allocs = 0
    for k in range(num_keys):
        if state[k] == _NEVER and final_state[k] > 0:
            before[k] = _LIVE if final_state[k] == 1 else _PENDING
        if before[k] > 0:
            num_before += 1
    for i in range(n):
        if action[i] == ALLOC and key[i] >= 0:
            num_allocs += 1
    rows = num_before + num_allocs
    tensor_key = np.empty(rows, np.int32)
    alloc_at = np.empty(rows, np.int64)
    requested_at = np.full(rows, n, np.int64)
    completed_at = np.full(rows, n, np.int64)
    tensor_of = np.full(n, -1, np.int32)
    current = np.full(num_keys, -1, np.int32)
    anomalies = np.zeros(NUM_PAIRING, np.int64)
    row = 0
    for k in range(num_keys):
        if before[k] > 0:
            tensor_key[row], alloc_at[row], current[k] = k, -1, row
            if before[k] == _PENDING:
                requested_at[row] = -1
            row += 1
        state[k] = before[k]
    for i in range(n):
        k = key[i]
        if k < 0:
            continue
        if action[i] == ALLOC:
            if state[k] == _LIVE or state[k] == _PENDING:
                anomalies[ALLOC_ON_LIVE] += 1
                old = current[k]
                requested_at[old] = min(requested_at[old], i)
                completed_at[old] = i
            tensor_key[row], alloc_at[row], current[k], tensor_of[i] = k, i, row, row
            state[k] = _LIVE
            row += 1
        elif action[i] == FREE_REQUESTED:
            if state[k] == _LIVE:
                tensor_of[i] = current[k]
                requested_at[current[k]] = i
                state[k] = _PENDING
            else:
                anomalies[DOUBLE_FREE if state[k] == _PENDING else UNMATCHED_FREE] += 1
        elif state[k] == _LIVE or state[k] == _PENDING:
            tensor_of[i] = current[k]
            requested_at[current[k]] = min(requested_at[current[k]], i)
            completed_at[current[k]] = i
            state[k] = _GONE
        else:
            anomalies[UNMATCHED_FREE] += 1
    return tensor_of, tensor_key, alloc_at, requested_at, completed_at, anomalies
