"""Workspaces of convolutions on CUDA, without which a program survives.

If such a request fails, PyTorch tries the next engine of cuDNN, and remembers the one that ran for all later calls of
the same convolution (Conv_v8.cpp: ``try_configs``, ``BenchmarkCache``). With ``torch.backends.cudnn.benchmark``, it
first requests the largest workspace of all engines; if that fails, half of it, and so on (``get_plans_from_find``).

A simulated device notes the workspaces of the engines, also for backward, which has no call stack. On a real device
without C++ frames, only the workspaces of forward are known, by the function that requests them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.workload import ALLOC, FREE, FREE_COMPLETED, FREE_REQUESTED, Workload
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

_FREES = (FREE, FREE_REQUESTED, FREE_COMPLETED)
_COLUMNS = ("op", "tensor", "size", "stream", "pool", "row")
_MOST = 24  # replays
_WORKSPACE = CATEGORIES.index("workspace")


@dataclass(frozen=True)
class ConvolutionWorkspaces:
    """The sizes of the workspaces of a program's convolutions.

    Attributes:
        following: By size in bytes, the size that PyTorch requests if this one fails; 0: none.
    """

    following: dict[int, int]

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace) -> ConvolutionWorkspaces:
        """Returns the workspaces that a recording shows."""
        if trace.backend != "cuda":
            return cls({})
        tensors = device.tensors
        is_brief = (tensors.alloc_at >= 0) & (tensors.free_requested_at == tensors.alloc_at + 1)
        workspaces = is_brief & (tensors.category == _WORKSPACE)
        sizes = {int(size) for size in np.unique(tensors.requested_bytes[workspaces])}
        scratch = trace.recorded.ended.scratch if trace.recorded is not None else None
        lists = scratch.workspaces if scratch is not None else ()
        sizes |= {size for each in lists for size in each if size}
        is_searching = scratch is not None and scratch.is_searching
        following = {size: _following(size, lists, is_searching=is_searching) for size in sizes}
        for size in [size for size, other in following.items() if other == size // 2]:
            while size > 1:
                following.setdefault(size, size // 2)
                size //= 2
        return cls(following)

    def requests(self, workload: Workload) -> Array:
        """Returns the requests for workspaces: the next call frees each of them (bool, one per call)."""
        found = np.zeros(len(workload.op), bool)
        if not self.following or len(found) < 2:
            return found
        sizes = np.fromiter(self.following, np.int64, len(self.following))
        is_freed = np.isin(workload.op[1:], _FREES) & (workload.tensor[1:] == workload.tensor[:-1])
        found[:-1] = (workload.op[:-1] == ALLOC) & is_freed & np.isin(workload.size[:-1], sizes)
        return found

    def replayed(self, workload: Workload, replay: Callable[[Workload], Replay]) -> Replay | None:
        """Replays a program with smaller workspaces where larger ones fail.

        The first request that fails stays before the smaller one, since the allocator releases cached memory for it.

        Args:
            workload: The requests of the program.
            replay: Replays requests within the memory of the card.

        Returns:
            The replay, or None if a request fails that the program needs.
        """
        num_tensors = workload.num_tensors  # larger numbers are those of requests that failed in an earlier replay
        for _ in range(_MOST):
            found = replay(workload)
            if (found.status == UNDEFINED).any():
                return None
            failed = np.flatnonzero((found.status == OUT_OF_MEMORY) & (workload.tensor < num_tensors))
            if not len(failed):
                return found
            optional = self.requests(workload) & (workload.tensor < num_tensors)
            if not optional[failed].all():
                return None
            workload = self._reduced(workload, optional, failed)
        return None

    def _reduced(self, workload: Workload, optional: Array, failed: Array) -> Workload:
        """Returns the requests with the next smaller workspace from the first failure of each size on."""
        sizes, firsts = np.unique(workload.size[failed], return_index=True)
        firsts = failed[firsts]
        size, keep = workload.size.copy(), np.ones(len(workload.size), bool)
        for old, first in zip(sizes.tolist(), firsts.tolist(), strict=True):
            rows = np.flatnonzero(optional & (workload.size == old))
            rows = rows[rows >= first]
            size[rows] = self.following[old]
            if not self.following[old]:
                keep &= ~np.isin(workload.tensor, workload.tensor[rows])
        columns = {name: getattr(workload, name) for name in _COLUMNS}
        numbers = workload.num_tensors + np.arange(len(firsts))
        tried = {name: column[firsts] for name, column in columns.items()} | {"tensor": numbers}
        ended = {**tried, "op": np.full(len(firsts), FREE), "size": np.zeros(len(firsts), np.int64)}
        columns["size"] = size
        after = np.cumsum(keep)[firsts] - keep[firsts]
        for name, column in columns.items():
            pairs = np.stack([tried[name], ended[name]], axis=1).ravel()
            columns[name] = np.insert(column[keep], np.repeat(after, 2), pairs)
        return replace(workload, **columns, num_tensors=workload.num_tensors + len(firsts))


def _following(size: int, lists: tuple[tuple[int, ...], ...], *, is_searching: bool) -> int:
    """Returns the workspace that PyTorch requests if one of this size fails.

    Args:
        size: Bytes of the workspace that fails.
        lists: The workspaces of the engines of each kind of convolution, in order.
        is_searching: Whether PyTorch searches for the fastest engine. A size that is not the first of its list is then
            the largest one of the search, with which it begins.
    """
    holding = [each for each in lists if size in each]
    if not holding:
        return 0
    best = min(holding, key=lambda each: each.index(size))
    if is_searching and best[0] != size:
        return size // 2
    return next((other for other in best[best.index(size) :] if other < size), 0)
