"""Bytes by call stack: what each stack held at a moment, what it held over time, and how often it asked."""

from __future__ import annotations

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array


def by_stack(device: DeviceTrace, at: int) -> dict[str, Array]:
    """Returns one row for each call stack that asked for memory (-1: none known), most bytes at the moment first.

    Args:
        device: The device.
        at: The moment, an event; -1: before the first.

    Returns:
        Columns: stack; bytes_at, num_at (blocks there at the moment, pending ones included); byte_events (bytes x the events that they
        stayed); byte_us (bytes x microseconds; -1 where times are not known); num_allocs; total_bytes (all that was ever asked for).
    """
    tensors = device.tensors
    stack, index = np.unique(tensors.stack, return_inverse=True)
    size = tensors.block_bytes.astype(
        np.float64
    )  # products are large: a share of a thousandth of a millionth does not matter
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
    """Whether every event has a time."""
    time = device.events.time_us
    return bool(len(time)) and bool((time >= 0).all())


def times(device: DeviceTrace, event: Array) -> Array:
    """Returns the microseconds of events; of ``num_events`` (the end) those of the last."""
    time = device.events.time_us
    return np.asarray(time[np.minimum(event, len(time) - 1)], np.float64)
