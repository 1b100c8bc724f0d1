"""The allocated peak without some tensors, if nothing else changes. It may then be at another moment."""

from __future__ import annotations

import numpy as np

from memdiag.results.finding import Evidence, Saving
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def peak_without(device: DeviceTrace, rows: Array) -> Evidence:
    """Returns the allocated peak (including before the trace) without the tensors ``rows``."""
    return Evidence(phrase("without.left"), _left(device, rows), "bytes")


def saving_without(device: DeviceTrace, rows: Array, *, at_most: int = 0) -> Saving | None:
    """Returns by how much the allocated peak falls without the tensors ``rows``; None if it does not.

    Args:
        device: The device.
        rows: Rows of Tensors.
        at_most: The upper end of the range, if it is more.
    """
    fall = int(device.usage.allocated.max(initial=device.start["allocated"])) - _left(device, rows)
    return Saving(0, fall, max(fall, at_most), "estimated") if fall > 0 else None


def _left(device: DeviceTrace, rows: Array) -> int:
    tensors, num_events = device.tensors, device.num_events
    size = tensors.block_bytes[rows]
    change = np.zeros(num_events + 1, np.int64)
    np.add.at(change, np.maximum(tensors.alloc_at[rows], 0), size)
    np.subtract.at(change, np.minimum(tensors.free_requested_at[rows], num_events), size)
    left = device.usage.allocated - np.cumsum(change[:num_events])
    before = device.start["allocated"] - int(size[tensors.alloc_at[rows] < 0].sum())
    return max(int(left.max(initial=0)), before)
