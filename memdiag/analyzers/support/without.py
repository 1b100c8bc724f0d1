"""The allocated peak without some tensors, if nothing else changes. It may then be at another moment."""

from __future__ import annotations

import numpy as np

from memdiag.results.finding import Evidence, Saving
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import PHASES
from memdiag.trace.table import Array

_PASSES = [PHASES.index(name) for name in ("forward", "backward")]


def peak_without(device: DeviceTrace, rows: Array, *, since: Array | None = None) -> Evidence:
    """Returns the allocated peak (including before the trace) without the tensors ``rows``.

    ``since`` has the meaning of that of ``saving_without``.
    """
    return Evidence(phrase("without.left"), _left(device, rows, since), "bytes")


def saving_without(device: DeviceTrace, rows: Array, *, at_most: int = 0, since: Array | None = None) -> Saving | None:
    """Returns by how much the allocated peak falls without the tensors ``rows``; None if it does not.

    Args:
        device: The device.
        rows: Rows of Tensors.
        at_most: The upper end of the range, if it is more.
        since: Per row, the event from which on the tensor would not be live; default: its allocation.
    """
    fall = int(device.usage.allocated.max(initial=device.start["allocated"])) - _left(device, rows, since)
    return Saving(0, fall, max(fall, at_most), "estimated") if fall > 0 else None


def from_next_steps(device: DeviceTrace, rows: Array) -> Array:
    """Returns, per row, the event from which on a step that keeps nothing would not have the tensor.

    A step needs the tensors of its own forward and backward. Others, such as copies of weights, are made to be kept.
    """
    step = device.events.step
    after = np.zeros(int(step.max(initial=0)) + 1, np.int64)
    inside = np.flatnonzero(step >= 0)
    after[step[inside]] = inside + 1  # the last of each step
    needed = np.isin(device.tensors.phase_alloc[rows], _PASSES)
    since: Array = np.maximum(
        np.where(needed, after[device.tensors.step_alloc[rows]], 0), device.tensors.alloc_at[rows]
    )
    return since


def _left(device: DeviceTrace, rows: Array, since: Array | None) -> int:
    tensors, num_events = device.tensors, device.num_events
    size = tensors.block_bytes[rows]
    change = np.zeros(num_events + 1, np.int64)
    until = np.minimum(tensors.free_requested_at[rows], num_events)
    np.add.at(change, np.minimum(np.maximum(tensors.alloc_at[rows] if since is None else since, 0), until), size)
    np.subtract.at(change, until, size)
    left = device.usage.allocated - np.cumsum(change[:num_events])
    before = device.start["allocated"] - int(size[tensors.alloc_at[rows] < 0].sum())
    return max(int(left.max(initial=0)), before)
