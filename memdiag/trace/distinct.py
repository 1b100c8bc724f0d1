"""Numbers equal values of a long column, with a hash table if few values differ: sorting takes five times as long."""

from __future__ import annotations

import numpy as np

from memdiag.trace.compiled import lean
from memdiag.trace.table import Array

# Slots of the hash table. More than half as many distinct values are sorted instead, and so are few values.
_SLOTS = 1 << 17
_PROBES = 8  # average number of slots to try per value; with more, the values are sorted instead
_PRIME = np.int64(2654435761)
_BITS = np.int64(0xFFFFFFFF)


def distinct(values: Array) -> tuple[Array, Array]:
    """Returns the distinct values of an int64 column, sorted, and the index of each value among them (int32)."""
    if len(values) <= _SLOTS:
        return _sorted(values)
    slots, number = np.full(_SLOTS, -1, np.int32), np.empty(len(values), np.int32)
    first = np.empty(_SLOTS // 2, np.int64)
    # A column of a table is read-only, which would be another type to compile for.
    count = _number(values if values.flags.writeable else values.copy(), slots, first, number)
    if count < 0:
        return _sorted(values)
    order = np.argsort(first[:count])
    place = np.empty(count, np.int32)
    place[order] = np.arange(count, dtype=np.int32)
    return first[order], place[number]


def occurrences(values: Array, of: Array) -> Array:
    """Returns how often each of the values ``of`` occurs in a column (int64)."""
    ordered = np.sort(values)
    number: Array = np.searchsorted(ordered, of, "right") - np.searchsorted(ordered, of)
    return number


def _sorted(values: Array) -> tuple[Array, Array]:
    found, number = np.unique(values, return_inverse=True)
    return found, number.astype(np.int32)


@lean(plain_seconds=1e-6)
def _number(values: Array, slots: Array, first: Array, number: Array) -> int:
    """Numbers values in the order in which they first occur; returns how many differ, or -1 if they have to be sorted.

    Args:
        values: The values.
        slots: A hash table, filled with -1.
        first: The distinct values; output.
        number: Number of each value; output.
    """
    count, last = 0, len(slots) - 1
    probes = _PROBES * len(values)
    for i in range(len(values)):
        value = values[i]
        code = (value ^ value >> 9) * _PRIME & _BITS
        slot = (code ^ code >> 15) & last
        while slots[slot] >= 0 and first[slots[slot]] != value:
            slot = (slot + 1) & last
            probes -= 1
        if probes < 0:
            return -1
        if slots[slot] < 0:
            if count == len(first):
                return -1
            slots[slot] = count
            first[count] = value
            count += 1
        number[i] = slots[slot]
    return count
