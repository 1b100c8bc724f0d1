"""Orders in which to place buffers, those that are hardest to place first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memdiag.allocator.placement.model import Partition
from memdiag.allocator.placement.sweeper import highest_totals
from memdiag.trace.table import Array

Keys = tuple[Array, ...]


def _span(partition: Partition) -> Array:
    return (partition.upper - partition.lower).astype(np.float64)


# Each function returns sort columns, the most important first; larger values come first. They are lifetime, size and
# crowdedness.
ORDERS: dict[str, Callable[[Partition, Array], Keys]] = {
    "span, area": lambda partition, total: (_span(partition), _span(partition) * partition.size, total),
    "crowd, span": lambda partition, total: (total, _span(partition), partition.size),
    "area, span": lambda partition, total: (_span(partition) * partition.size, _span(partition), total),
    "crowd, area": lambda partition, total: (total, _span(partition) * partition.size, _span(partition)),
    "size": lambda partition, total: (partition.size, _span(partition), total),
    "size, root of span": lambda partition, total: (partition.size * np.sqrt(_span(partition)), total),
    "crowd, size": lambda partition, total: (total, partition.size, _span(partition)),
    "death": lambda partition, total: (partition.upper, partition.size, total),
    "birth": lambda partition, total: (-partition.lower, partition.size, total),
}


def by(keys: Keys) -> Array:
    """Returns the rows sorted by the largest keys; equal rows keep their order."""
    return np.lexsort(tuple(-key for key in reversed(keys))).astype(np.int64)


def all_orders(partition: Partition) -> dict[str, Array]:
    """Returns every order of a partition's buffers, by its name."""
    total = highest_totals(partition)
    return {name: by(keys(partition, total)) for name, keys in ORDERS.items()}


def mixed(partition: Partition, total: Array, chance: np.random.Generator) -> Array:
    """Returns a random order that weighs length of life, size, crowdedness and time.

    Long lives weigh most: in trials, most searches that quickly found a tight placement had such an order. The time
    (early or late first) weighs nothing, something or much. If all lives are short, a bad start on one side is then
    found before the search reaches the other side.
    """
    weights = chance.standard_normal(4)
    weights[0] = 1.0 + abs(weights[0])
    weights[2] /= 2
    weights[3] *= chance.integers(3)
    late = (partition.lower + partition.upper) / partition.num_sections - 1.0
    columns = (np.log(_span(partition)), np.log(partition.size), np.log(total), late)
    score = sum(weight * _level(column) for weight, column in zip(weights, columns, strict=True))
    return np.argsort(-score, kind="stable").astype(np.int64)


def _level(column: Array) -> Array:
    """Returns the column scaled to mean 0 and deviation 1."""
    deviation = float(column.std())
    centred: Array = column - column.mean()
    return centred / deviation if deviation > 0 else centred
