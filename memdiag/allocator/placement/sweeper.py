"""Sweeps over time: sections without changes, independent partitions, and the load.

A buffer that is live during a whole partition can go to its bottom without loss, if everything below it is lifted by
its size. Such buffers are removed; the rest may then form smaller partitions, and so on.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.model import Partition
from memdiag.trace.table import Array


def load_of(size: Array, lower: Array, upper: Array) -> int:
    """Returns the most bytes live at one moment: int64 columns, lifetimes [lower, upper)."""
    return int(np.cumsum(_changes(size, lower, upper)[1]).max(initial=0))


def _changes(size: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Returns the times at which live bytes change, ascending, and the changes."""
    times, place = np.unique(np.concatenate((lower, upper)), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, np.concatenate((size, -size)))
    return times, change


def sweep(size: Array, lower: Array, upper: Array) -> list[Partition]:
    """Returns the partitions, the one with the most units first.

    Args:
        size: Units, above 0 (int64).
        lower, upper: Lifetimes, ``lower < upper`` (int64).
    """
    partitions: list[Partition] = []
    todo = [(np.arange(len(size)), 0)] if len(size) else []
    while todo:
        buffer_idxs, base = todo.pop()
        for group in _components(buffer_idxs, lower, upper):
            section_lower, section_upper, num_sections = section_spans(lower[group], upper[group])
            always = (section_lower == 0) & (section_upper == num_sections)
            if always.all():  # all buffers are live at once, so every order is equally good
                partitions.append(_partition(group, base, section_lower, section_upper, size, num_sections))
            elif always.any():
                todo.append((group[~always], base + int(size[group[always]].sum())))
                partitions.append(
                    _partition(
                        group[always],
                        base,
                        np.zeros_like(section_lower[always]),
                        np.ones_like(section_upper[always]),
                        size,
                        1,
                    )
                )
            else:
                partitions.append(_partition(group, base, section_lower, section_upper, size, num_sections))
    return sorted(partitions, key=lambda partition: (-(partition.base + partition.bound), partition.buffer_idxs[0]))


def _partition(
    group: Array, base: int, section_lower: Array, section_upper: Array, size: Array, num_sections: int
) -> Partition:
    change = np.zeros(num_sections + 1, np.int64)
    np.add.at(change, section_lower, size[group])
    np.add.at(change, section_upper, -size[group])
    return Partition(group, base, section_lower, section_upper, size[group], np.cumsum(change)[:-1])


def _components(buffer_idxs: Array, lower: Array, upper: Array) -> list[Array]:
    """Returns the buffers in groups of which no two share a moment, in order of time."""
    order = buffer_idxs[np.argsort(lower[buffer_idxs], kind="stable")]
    reach = np.maximum.accumulate(upper[order])
    cuts = np.flatnonzero(lower[order][1:] >= reach[:-1]) + 1
    return np.split(order, cuts)


def section_spans(lower: Array, upper: Array) -> tuple[Array, Array, int]:
    """Returns the first section of each lifetime, the one after its last, and the number of sections.

    A section begins with an allocation after a free. The buffers live at any moment are all live in one of the
    sections.
    """
    births = np.unique(lower)
    deaths = np.unique(upper)
    # after a run of allocations without a free, the last moment includes all buffers of the earlier ones
    following = np.searchsorted(deaths, births, side="right")
    keep = np.append(following[1:] != following[:-1], True)
    moments = births[keep]
    section_lower = np.searchsorted(moments, lower, side="left")
    section_upper = np.searchsorted(moments, upper, side="left")
    return section_lower.astype(np.int64), section_upper.astype(np.int64), len(moments)


def highest_totals(partition: Partition) -> Array:
    """Returns, per buffer, the highest total of any section in which it is live."""
    tables = [partition.total]
    width = 1
    while 2 * width <= partition.num_sections:  # maxima of 1, 2, 4 … adjacent sections
        tables.append(np.maximum(tables[-1][:-width], tables[-1][width:]))
        width *= 2
    span = partition.upper - partition.lower
    level = np.frexp(span.astype(np.float64))[1] - 1  # the largest power of two not above it
    highest = np.empty(len(span), np.int64)
    for power, table in enumerate(tables):
        rows = np.flatnonzero(level == power)
        highest[rows] = np.maximum(table[partition.lower[rows]], table[partition.upper[rows] - (1 << power)])
    return highest
