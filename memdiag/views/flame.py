"""Bytes by call stack: live bytes at a moment, bytes over time, and number of requests."""

from __future__ import annotations

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def by_stack(device: DeviceTrace, at: int) -> dict[str, Array]:
    """Returns one row for each call stack with requests (-1: unknown), most bytes at the moment first.

    Args:
        device: The device.
        at: The moment is after this event, or before the first event if -1.

    Returns:
        Columns: stack; bytes_at, num_at (blocks at the moment, including pending ones); byte_events (bytes x events of
        their lifetime); byte_us (bytes x microseconds; -1 if times are unknown); num_allocs; total_bytes (all bytes
        ever requested).
    """
    tensors = device.tensors
    stack, index = np.unique(tensors.stack, return_inverse=True)
    size = tensors.block_bytes.astype(np.float64)  # the products are large: a relative error of 1e-9 does not matter
    n = device.num_events
    born, gone = np.clip(tensors.alloc_at, 0, n), np.clip(tensors.free_completed_at, 0, n)
    there = (tensors.alloc_at <= at) & (tensors.free_completed_at > at)

    def total(weight: Array) -> Array:
        return np.bincount(index, weight, len(stack))

    columns = {
        "stack": stack,
        "bytes_at": total(size * there).astype(np.int64),
        "num_at": np.bincount(index[there], minlength=len(stack)),
        "byte_events": total(size * (gone - born)),
        "byte_us": total(size * (times(device, gone) - times(device, born)))
        if has_times(device)
        else np.full(len(stack), -1.0),
        "num_allocs": np.bincount(index, minlength=len(stack)),
        "total_bytes": total(size).astype(np.int64),
    }
    order = np.lexsort((columns["stack"], -columns["total_bytes"], -columns["bytes_at"]))
    return {name: values[order] for name, values in columns.items()}


def has_times(device: DeviceTrace) -> bool:
    """Returns whether every event has a time."""
    time = device.events.time_us
    return bool(len(time)) and bool((time >= 0).all())


def times(device: DeviceTrace, event: Array) -> Array:
    """Returns the microseconds of events; ``num_events`` (the end) gets the time of the last one."""
    time = device.events.time_us
    return np.asarray(time[np.minimum(event, len(time) - 1)], np.float64)
