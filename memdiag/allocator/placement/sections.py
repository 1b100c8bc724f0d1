"""Time as the planner sees it: sections in which nothing changes, parts that have nothing to do with each other, and the load.

What lives all through a part can lie at its bottom without loss (lift everything that was below it by its size), so it
is taken out; without it the part may fall into smaller ones, and so on.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.model import Part
from memdiag.trace.table import Array


def load_of(size: Array, lower: Array, upper: Array) -> int:
    """Returns the most bytes live at one moment: int64 columns, lifetimes [lower, upper)."""
    return int(np.cumsum(_changes(size, lower, upper)[1]).max(initial=0))


def _changes(size: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Returns the moments at which something changes, increasing, and by how much the live bytes do."""
    times, place = np.unique(np.concatenate((lower, upper)), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, np.concatenate((size, -size)))
    return times, change


def split(size: Array, lower: Array, upper: Array) -> list[Part]:
    """Returns the parts, the one with the most units first.

    Args:
        size: Units, above 0 (int64).
        lower, upper: Lifetimes, ``lower < upper`` (int64).
    """
    parts: list[Part] = []
    todo = [(np.arange(len(size)), 0)] if len(size) else []
    while todo:
        members, base = todo.pop()
        for group in _components(members, lower, upper):
            first, last, num_sections = compress(lower[group], upper[group])
            always = (first == 0) & (last == num_sections)
            if always.all():  # they are all there at once: any order is as good
                parts.append(_part(group, base, first, last, size, num_sections))
            elif always.any():
                todo.append((group[~always], base + int(size[group[always]].sum())))
                parts.append(
                    _part(group[always], base, np.zeros_like(first[always]), np.ones_like(last[always]), size, 1)
                )
            else:
                parts.append(_part(group, base, first, last, size, num_sections))
    return sorted(parts, key=lambda part: (-(part.base + part.bound), part.members[0]))


def _part(group: Array, base: int, first: Array, last: Array, size: Array, num_sections: int) -> Part:
    change = np.zeros(num_sections + 1, np.int64)
    np.add.at(change, first, size[group])
    np.add.at(change, last, -size[group])
    return Part(group, base, first, last, size[group], np.cumsum(change)[:-1])


def _components(members: Array, lower: Array, upper: Array) -> list[Array]:
    """Returns the members in groups of which no two share a moment, in order of time."""
    order = members[np.argsort(lower[members], kind="stable")]
    reach = np.maximum.accumulate(upper[order])
    cuts = np.flatnonzero(lower[order][1:] >= reach[:-1]) + 1
    return np.split(order, cuts)


def compress(lower: Array, upper: Array) -> tuple[Array, Array, int]:
    """Returns the first section and the one after the last of each lifetime, and how many there are.

    A section begins where something was born after something had died: all that is live at any moment is live in one of
    them.
    """
    births = np.unique(lower)
    deaths = np.unique(upper)
    # of a run of births without a death in between, the last moment has all that the earlier ones have
    following = np.searchsorted(deaths, births, side="right")
    keep = np.append(following[1:] != following[:-1], True)
    moments = births[keep]
    first = np.searchsorted(moments, lower, side="left")
    last = np.searchsorted(moments, upper, side="left")
    return first.astype(np.int64), last.astype(np.int64), len(moments)


def contention(part: Part) -> Array:
    """Returns, per member, the highest load of any section that it lives in."""
    tables = [part.load]
    width = 1
    while 2 * width <= part.num_sections:  # maxima of 1, 2, 4 … sections side by side
        tables.append(np.maximum(tables[-1][:-width], tables[-1][width:]))
        width *= 2
    span = part.last - part.first
    level = np.frexp(span.astype(np.float64))[1] - 1  # the power of two not above it
    most = np.empty(len(span), np.int64)
    for k, table in enumerate(tables):
        rows = np.flatnonzero(level == k)
        most[rows] = np.maximum(table[part.first[rows]], table[part.last[rows] - (1 << k)])
    return most
