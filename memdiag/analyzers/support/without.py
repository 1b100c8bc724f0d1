"""The allocated peak without some tensors, if nothing else changes. It may then be at another moment."""

from __future__ import annotations

import numpy as np

from memdiag.results.finding import Evidence
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def peak_without(device: DeviceTrace, rows: Array) -> Evidence:
    """Returns the allocated peak (including before the trace) without the tensors ``rows``."""
    tensors, num_events = device.tensors, device.num_events
    size = tensors.block_bytes[rows]
    change = np.zeros(num_events + 1, np.int64)
    np.add.at(change, np.maximum(tensors.alloc_at[rows], 0), size)
    np.subtract.at(change, np.minimum(tensors.free_requested_at[rows], num_events), size)
    left = device.usage.allocated - np.cumsum(change[:num_events])
    before = device.start["allocated"] - int(size[tensors.alloc_at[rows] < 0].sum())
    return Evidence(phrase("without.left"), max(int(left.max(initial=0)), before), "bytes")
