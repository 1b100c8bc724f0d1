"""Rewrites the requests to the device's allocator.

It adds a free after a tensor is offloaded, and an allocation when it is reloaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.workload import ALLOC, FREE, FREE_COMPLETED, FREE_REQUESTED, RECORD_STREAM, Workload
from memdiag.offload.schedule import Moves
from memdiag.offload.windows import Windows
from memdiag.trace.table import Array

_FREES = (FREE, FREE_REQUESTED, FREE_COMPLETED, RECORD_STREAM)  # must not occur while a tensor is offloaded


@dataclass(frozen=True)
class Rewritten:
    """A workload with moves.

    Attributes:
        workload: The calls.
        origin: Per tensor number, the original tensor; numbers beyond those of the trace are reloaded tensors.
    """

    workload: Workload
    origin: Array


def rewrite(workload: Workload, windows: Windows, moves: Moves) -> Rewritten:
    """Returns ``workload`` with the moves.

    Args:
        workload: The program's requests; its numbers are rows in Tensors.
        windows, moves: The moves and their times.
    """
    real = np.flatnonzero(moves.back_at > moves.out_at)
    tensor = windows.tensor[moves.window[real]].astype(np.int64)
    made, freed = _first_calls(workload)
    out = np.searchsorted(workload.row, moves.out_at[real], side="left")
    back = np.searchsorted(workload.row, moves.back_at[real], side="left")
    # A move is within the tensor's calls: after its allocation, before its free.
    out = np.maximum(out, made[tensor] + 1)
    returns = moves.back_at[real] < workload.num_rows
    back = np.where(returns, np.minimum(back, freed[tensor]), len(workload.op))
    kept = (back > out) | ((back >= out) & ~returns)
    tensor, out, back, returns = tensor[kept], out[kept], back[kept], returns[kept]
    by = np.lexsort((out, tensor))
    tensor, out, back, returns = tensor[by], out[by], back[by], returns[by]
    comes = np.flatnonzero(returns)
    number = np.full(len(tensor), -1, np.int64)
    number[comes] = workload.num_tensors + np.arange(len(comes))
    # Before the first move a tensor has its own number, after each reload that of the reload.
    first = np.append(True, tensor[1:] != tensor[:-1]) if len(tensor) else np.empty(0, bool)
    going = np.where(first, tensor, np.append(-1, number)[:-1])
    going = np.where(~first & (going < 0), tensor, going)
    calls = _renumbered(workload, tensor[comes], back[comes], number[comes])
    details = _details(workload)
    where = np.concatenate([out, back[comes]])
    columns = {
        "op": np.concatenate([np.full(len(out), FREE), np.full(len(comes), ALLOC)]),
        "tensor": np.concatenate([going, number[comes]]),
        "size": np.concatenate([np.zeros(len(out), np.int64), details["size"][tensor[comes]]]),
        "stream": np.concatenate([details["stream"][tensor], details["stream"][tensor[comes]]]),
        "pool": np.concatenate([np.full(len(out), -1), details["pool"][tensor[comes]]]),
        "row": np.concatenate([moves.out_at[real][kept][by], moves.back_at[real][kept][by][comes]]),
    }
    columns["row"] = np.minimum(
        columns["row"], np.append(workload.row, workload.num_rows - 1)[np.minimum(where, len(workload.row))]
    )
    order = np.argsort(where, kind="stable")  # frees come first: departures make room for arrivals
    changed = {
        name: np.insert(calls if name == "tensor" else getattr(workload, name), where[order], values[order])
        for name, values in columns.items()
    }
    changed["row"] = np.maximum.accumulate(changed["row"]).astype(workload.row.dtype)
    origin = np.concatenate([np.arange(workload.num_tensors), tensor[comes]])
    return Rewritten(replace(workload, **changed, num_tensors=len(origin)), origin)  # type: ignore[arg-type]


def _first_calls(workload: Workload) -> tuple[Array, Array]:
    """Returns the call that allocates each tensor (-1: none) and the one that frees it (the number of calls: none)."""
    n = workload.num_tensors
    made, freed = np.full(n, -1, np.int64), np.full(n, len(workload.op), np.int64)
    at = np.flatnonzero((workload.op == ALLOC) & (workload.tensor >= 0))
    made[workload.tensor[at]] = at
    others = np.flatnonzero((workload.op != ALLOC) & (workload.tensor >= 0))[::-1]
    frees = others[np.isin(workload.op[others], _FREES)]
    freed[workload.tensor[frees]] = frees
    return made, freed


def _renumbered(workload: Workload, tensor: Array, back: Array, number: Array) -> Array:
    """Returns the column ``tensor`` with the numbers after reloads."""
    calls = workload.tensor.astype(np.int64).copy()
    if not len(tensor):
        return calls
    length = len(workload.op) + 1
    key = tensor * length + back
    order = np.argsort(key, kind="stable")
    at = np.flatnonzero((calls >= 0) & np.isin(calls, tensor))
    last = np.searchsorted(key[order], calls[at] * length + at, side="right") - 1
    valid = (last >= 0) & (tensor[order[np.maximum(last, 0)]] == calls[at])
    calls[at[valid]] = number[order[last[valid]]]
    return calls


def _details(workload: Workload) -> dict[str, Array]:
    """Returns size, stream and pool of each tensor, from its allocation or the initial state."""
    found = {name: np.zeros(workload.num_tensors, np.int64) for name in ("size", "stream", "pool")}
    start = workload.start
    if len(start.block_tensor):
        known = start.block_tensor >= 0
        of = start.block_tensor[known]
        found["size"][of] = start.block_requested[known]
        found["stream"][of] = start.stream[start.block_range[known]]
        found["pool"][of] = start.pool[start.block_range[known]]
    at = np.flatnonzero((workload.op == ALLOC) & (workload.tensor >= 0))
    for name, values in found.items():
        values[workload.tensor[at]] = getattr(workload, name)[at]
    return found
