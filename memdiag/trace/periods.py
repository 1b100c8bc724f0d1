"""Finds training steps in a trace without stacks or marks: sequences of sizes that repeat.

A training step requests the same sizes in the same order every time. Layers repeat too, and more often, so the period
is the shortest that holds almost everywhere, not the most frequent one. The first steps differ (optimizer state is
allocated, libraries allocate their workspaces), so only the later half of the trace is used.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

WINDOW = 6  # allocations that must match to count as the same position in a step
MIN_PERIOD = 8  # shorter repetitions are loops, not training steps
MIN_STEPS = 3
MIN_AGREEMENT = 0.9  # share of allocations that repeat one period later
CANDIDATES = 48


def find_steps(device: DeviceTrace) -> Array:
    """Returns the events at which steps begin (the minimum of allocated bytes per period); empty if none repeat."""
    allocs = np.flatnonzero(device.events.action == schema.ALLOC)
    nothing = np.empty(0, np.int64)
    if len(allocs) < MIN_STEPS * MIN_PERIOD:
        return nothing
    size = device.events.size[allocs]
    window = _windows(size)
    period = _period(size, window)
    if period == 0:
        return nothing
    # A step begins at the minimum of allocated bytes, which must be unique within the last period.
    last = window[len(window) - period :]
    _, inverse, count = np.unique(last, return_inverse=True, return_counts=True)
    at = allocs[len(window) - period : len(window)]
    held = np.where(at > 0, device.usage.allocated[np.maximum(at, 1) - 1], device.start["allocated"])
    unique = np.flatnonzero(count[inverse] == 1)
    if not len(unique):
        return nothing
    anchor = last[unique[np.argmin(held[unique])]]
    begins = np.flatnonzero(window == anchor)
    kept = begins[np.append(True, np.diff(begins) > period // 2)]
    return allocs[kept] if len(kept) >= MIN_STEPS else nothing


def _windows(size: Array) -> Array:
    """Returns a hash (uint64) of each window of WINDOW successive sizes."""
    mixed = (size.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    num = len(size) - WINDOW + 1
    window = np.zeros(num, np.uint64)
    for place in range(WINDOW):
        window = window * np.uint64(0xBF58476D1CE4E5B9) + mixed[place : place + num]
    return window


def _period(size: Array, window: Array) -> int:
    """Returns the number of allocations per step, or 0 if nothing repeats."""
    order = np.argsort(window, kind="stable")
    again = window[order][1:] == window[order][:-1]
    gaps = (order[1:] - order[:-1])[again]
    gaps = gaps[(gaps >= MIN_PERIOD) & (gaps <= len(size) // MIN_STEPS)]
    if not len(gaps):
        return 0
    lengths, count = np.unique(gaps, return_counts=True)
    # A step's own period occurs once per step and position: weight it with its length, or layers would outvote it.
    likely = lengths[np.argsort(-(count * lengths), kind="stable")[:CANDIDATES]]
    agreement = {int(length): _agreement(size, int(length)) for length in likely}
    best = max(agreement.values())
    if best < MIN_AGREEMENT:
        return 0
    return min(length for length, share in agreement.items() if share >= best - 0.02)


def _agreement(size: Array, period: int) -> float:
    """Returns the share of allocations in the later half of the trace that repeat ``period`` allocations later."""
    first = min(len(size) // 2, len(size) - 2 * period)
    return float((size[first:-period] == size[first + period :]).mean())
