"""Pools of a program's own by module: which layer, or which kind of part of a layer, a request within a scope of layers belongs to.

Neither has names in most recordings. Layers are counted: within a call of the stack of layers from the first, and from the last where
backward computes them again. Parts (attention, MLP …) are told by call stacks: which line of the layer's ``forward`` calls which other one.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.lifecycle.hooks import marks_of
from memdiag.allocator.lifecycle.marks import FORWARD_BEGIN
from memdiag.allocator.lifecycle.stack_calls import parts_of
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

_BACKWARD = schema.PHASES.index("backward")


def layer_numbers(trace: Trace, device: DeviceTrace, workload: Workload, begin: Array) -> Array:
    """Returns, for calls of layers that begin at some calls of a workload (in order), the number of the layer (int64)."""
    if not len(begin) or not len(workload.row):
        return np.zeros(len(begin), np.int64)
    marks = marks_of(trace, device, workload, "stack")
    of_stack = np.searchsorted(np.sort(marks.at[marks.kind == FORWARD_BEGIN]), begin, side="right")
    rows = np.minimum(workload.row[np.minimum(begin, len(workload.row) - 1)], max(device.num_events - 1, 0))
    again = device.events.phase[rows] == _BACKWARD
    opens = np.append(True, (np.diff(of_stack) != 0) | (np.diff(again.astype(np.int8)) != 0))
    run = np.cumsum(opens) - 1
    number = np.arange(len(begin)) - np.flatnonzero(opens)[run]
    count = int(np.bincount(run[~again] if not again.all() else run).max())  # layers of a stack
    numbers: Array = np.where(again, count - 1 - number % count, number % count)
    return numbers


def split_by_part(trace: Trace, device: DeviceTrace, workload: Workload, begin: Array, end: Array) -> tuple[Array, Array, Array]:
    """Returns scopes within others: begin, end and number of the part (int64; 0: the layer itself), a new one where the part changes.

    Args:
        trace, device, workload: What was recorded.
        begin, end: The scopes of layers, in calls of the workload, in order.
    """
    part = parts_of(trace.stacks, device)
    rows = np.clip(workload.row, 0, max(device.num_events - 1, 0))
    spans: list[tuple[int, int, int]] = []
    for first, last in zip(begin.tolist(), end.tolist(), strict=True):
        asks = first + np.flatnonzero(workload.op[first:last] == w.ALLOC)
        parts = part[device.events.stack[rows[asks]]]
        changes = np.flatnonzero(np.diff(parts)) + 1
        edges = [first, *asks[changes].tolist(), last]
        numbers = parts[np.append(0, changes)].tolist() if len(parts) else [0]
        spans += [span for span in zip(edges, edges[1:], numbers, strict=False) if span[1] > span[0]]
    table = np.array(spans, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
