"""The curves of a device with few points, without losing a peak: a screen or page cannot hold a million events."""

from __future__ import annotations

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.moments import failed_allocations, peak_event
from memdiag.trace.table import Array

_MOST_OOMS = 50  # moments always included
_PER_BUCKET = 4  # points per bucket: first, highest reserved, highest and lowest allocated


def pick(device: DeviceTrace, most: int) -> Array:
    """Returns events (int64, ascending) that draw the curves in about ``most`` points, or all if there are no more.

    They are the first event of each bucket, the one with most reserved bytes, and those with most and least allocated
    bytes. Added are the last event, the first events of both peaks, and every out-of-memory event (the first ones, if
    there are very many).
    """
    if device.num_events <= most:
        return np.arange(device.num_events)
    chosen = of_curve(device.usage.reserved, device.usage.allocated, most)
    return np.unique(np.concatenate((chosen, moments(device))))


def of_curve(reserved: Array, allocated: Array, most: int) -> Array:
    """Returns rows (int64, ascending) that draw two curves in about ``most`` points; all rows if there are no more."""
    n = len(reserved)
    if n <= most:
        return np.arange(n)
    edges = _edges(n, max(most // _PER_BUCKET, 1))
    return np.unique(
        np.concatenate((edges[:-1], _best(reserved, edges), _best(allocated, edges), _best(-allocated, edges), [n - 1]))
    )


def instants(device: DeviceTrace, most: int, also: tuple[int, ...] = ()) -> Array:
    """Returns the events that can be inspected in full.

    They are the event with the most allocated bytes of each of ``most`` buckets, both peaks, failures, and ``also``.

    -1, the state before the first event, is included if any memory was reserved then, or if there is no event.
    """
    n = device.num_events
    chosen = np.arange(n) if n <= most else _best(device.usage.allocated, _edges(n, most))
    before = [-1] if not n or max(device.start.values()) > 0 else []
    return np.unique(np.concatenate((before, chosen, moments(device), [at for at in also if -1 <= at < n]))).astype(
        np.int64
    )


def moments(device: DeviceTrace) -> Array:
    """Returns the events that every drawing includes.

    They are the peaks within the trace, and the first and last out-of-memory events.
    """
    if not device.num_events:
        return np.empty(0, np.int64)
    peaks = [at for at in (device.peak("reserved"), device.peak("allocated"), peak_event(device)) if at >= 0]
    failed = failed_allocations(device)
    return np.concatenate((peaks, failed[:_MOST_OOMS], failed[-1:])).astype(np.int64)


def phase_spans(device: DeviceTrace) -> dict[str, Array]:
    """Returns runs of events of one phase: columns start, end (exclusive) and phase (index into PHASES)."""
    phase = device.events.phase
    start = np.flatnonzero(np.diff(phase, prepend=-1)) if len(phase) else np.empty(0, np.int64)
    return {"start": start, "end": np.append(start[1:], len(phase))[: len(start)], "phase": phase[start]}


def step_starts(device: DeviceTrace) -> dict[str, Array]:
    """Returns the first event of every training step: columns event and step."""
    step = device.events.step
    event = np.flatnonzero((np.diff(step, prepend=-1) != 0) & (step >= 0)) if len(step) else np.empty(0, np.int64)
    return {"event": event, "step": step[event]}


def retries(device: DeviceTrace) -> Array:
    """Returns the requests that were served after cached segments had been released."""
    references = device.references
    return np.asarray(references.at_event[references.retried & ~references.failed])


def by_class(device: DeviceTrace, at: Array, column: str, num_classes: int) -> Array:
    """Returns bytes of blocks, pending ones included, by class of their tensors.

    Args:
        device: The device.
        at: Events, ascending; -1 is before the first.
        column: Column of Tensors with small numbers: "category", "lifetime", …
        num_classes: Number of classes.

    Returns:
        int64, (num_classes, len(at)).
    """
    tensors = device.tensors
    rows = np.flatnonzero(tensors.group >= 0) if device.has_addresses else np.arange(len(tensors))
    first = np.searchsorted(at, tensors.alloc_at[rows])
    last = np.searchsorted(at, tensors.free_completed_at[rows])
    width = len(at) + 1
    base = tensors[column][rows].astype(np.int64) * width
    size = tensors.block_bytes[rows].astype(np.float64)  # sums below 2^53 are exact
    shape = num_classes * width
    change = np.bincount(base + first, size, shape) - np.bincount(base + last, size, shape)
    return np.cumsum(change.reshape(num_classes, width), axis=1)[:, :-1].astype(np.int64)


def _edges(n: int, buckets: int) -> Array:
    return np.arange(buckets + 1, dtype=np.int64) * n // buckets


def _best(values: Array, edges: Array) -> Array:
    """Returns the first index of the highest value in each bucket."""
    return np.array(
        [lo + int(np.argmax(values[lo:hi])) for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)],
        np.int64,
    )
