"""Finds the 16-bit copies of weights that autocast makes.

Autocast caches a copy of each weight until the outermost region of autocast ends, also if recomputation no longer saves
it for backward (autocast_mode.cpp, ``cached_cast``). Recomputation enters a region of its own, so it makes them again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from memdiag.offload.modules import module_of_name
from memdiag.offload.passes import FORWARD
from memdiag.recorder.config import AUTOCAST_ENDED
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import MARK, module_at, place
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

_PARAMETER = CATEGORIES.index("parameter")


@dataclass(frozen=True)
class Casts:
    """The copies of weights in a recording.

    Attributes:
        rows: The copies that autocast keeps, as rows in Tensors, in the order of allocation.
        alloc_at: Events at which they are allocated.
        ends: Events before which regions of autocast end, in order; empty if the recording does not have them.
        is_used: Whether there are copies of weights, though autocast may keep none.
    """

    rows: Array
    alloc_at: Array
    ends: Array
    is_used: bool

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace) -> Casts:
        """Finds the copies in a recording."""
        rows, is_kept = _copies(trace, device)
        is_used, rows = bool(len(rows)), rows if is_kept else rows[:0]
        return cls(rows, device.tensors.alloc_at[rows], _region_ends(trace, device), is_used)

    def made_in(self, begin: int, end: int) -> Array:
        """Returns the copies that are allocated between two events, as rows in Tensors."""
        rows: Array = self.rows[np.searchsorted(self.alloc_at, begin) : np.searchsorted(self.alloc_at, end)]
        return rows

    def still_cached(self, device: DeviceTrace, rows: Array, begin: int) -> Array:
        """Returns the copies of an earlier call of a module that autocast still has when another call begins.

        Args:
            device: The device.
            rows: The copies that the earlier call makes.
            begin: The beginning of the later call.
        """
        if not len(self.ends):
            return rows[device.tensors.free_requested_at[rows] > begin]
        earlier = np.searchsorted(self.ends, device.tensors.alloc_at[rows], side="right")
        found: Array = rows[earlier == np.searchsorted(self.ends, begin, side="right")]
        return found

    def freed_without_autograd(self, device: DeviceTrace, rows: Array, backward: int) -> int:
        """Returns the event at which copies are freed that autograd does not save.

        Args:
            device: The device.
            rows: The copies that one call of a module makes.
            backward: The beginning of the backward pass, before which their region ends.
        """
        if len(self.ends) and len(rows):
            following = np.searchsorted(self.ends, device.tensors.alloc_at[rows[-1]], side="right")
            return min(int(self.ends[following]), backward) if following < len(self.ends) else backward
        freed = device.tensors.free_requested_at[rows]  # autograd never saves copies of biases
        return int(freed[freed < backward].max(initial=-1)) if (freed < backward).any() else backward


def _region_ends(trace: Trace, device: DeviceTrace) -> Array:
    if trace.recorded is None or AUTOCAST_ENDED not in trace.recorded.names:
        return np.empty(0, np.int64)
    marks = trace.recorded.marks
    is_end = (marks["kind"] == MARK) & (marks["value"] == trace.recorded.names.index(AUTOCAST_ENDED))
    where = place(trace.recorded, device, marks)[is_end]
    return np.unique(where[where >= 0])


def _copies(trace: Trace, device: DeviceTrace) -> tuple[Array, bool]:
    """Returns the copies of weights that autocast makes in forward, and whether it keeps them.

    The copies are rows in Tensors, in the order of allocation.

    A copy has half the bytes of a parameter of the module whose own code allocates it, outlives this code, and is not
    the last such tensor, which is the output. A module also uses the parameters of modules in it that are never called,
    as attention those of its last projection. If there are copies of weights but none of biases, which autograd does
    not save, autocast keeps none (``cache_enabled=False``, as in Lightning).
    """
    if trace.recorded is None:
        return np.empty(0, np.int64), True
    tensors, names = device.tensors, trace.recorded.names
    weights = np.flatnonzero((tensors.category == _PARAMETER) & (tensors.name >= 0))
    running = module_at(trace.recorded, device)
    called = {names[name] for name in np.unique(running).tolist() if name >= 0}
    sizes: dict[str, dict[int, int]] = {}  # by module: bytes of each parameter, by name
    biases: set[int] = set()
    for name, size in zip(tensors.name[weights].tolist(), tensors.requested_bytes[weights].tolist(), strict=True):
        if size % 4 == 0:
            sizes.setdefault(_caller_of(module_of_name(trace.strings[name]), called), {})[name] = size
            biases |= {size // 2} if trace.strings[name].endswith("bias") else set()
    starts = np.append(0, np.flatnonzero(np.diff(running)) + 1)
    ends = np.append(starts[1:], len(running))
    rows = np.flatnonzero((tensors.alloc_at >= 0) & (tensors.phase_alloc == FORWARD))
    rows = rows[np.argsort(tensors.alloc_at[rows], kind="stable")]
    run = np.searchsorted(starts, tensors.alloc_at[rows], side="right") - 1
    is_lasting = tensors.free_requested_at[rows] >= ends[run]
    rows, run = rows[is_lasting], run[is_lasting]
    is_output = np.append(run[1:] != run[:-1], True)[: len(run)]
    found: list[int] = []
    expects_bias = has_bias = False
    left: dict[int, int] = {}  # how many copies of each size the running code may still make
    last, may_have_bias = -1, False
    for row, number in zip(rows[~is_output].tolist(), run[~is_output].tolist(), strict=True):
        if number != last:
            last, left, module = number, {}, int(running[starts[number]])
            for size in sizes.get(names[module] if module >= 0 else "", {}).values():
                left[size // 2] = left.get(size // 2, 0) + 1
            may_have_bias = not biases.isdisjoint(left)
        size = int(tensors.requested_bytes[row])
        if left.get(size):
            left[size] -= 1
            found.append(row)
            expects_bias |= may_have_bias
            has_bias |= size in biases
    return np.array(found, np.int64), has_bias or not expects_bias


def _caller_of(path: str, called: Collection[str]) -> str:
    """Returns the innermost module around a path, or at it, that is called; if none is, the path."""
    found = path
    while found and found not in called:
        found = found.rpartition(".")[0]
    return found or path
