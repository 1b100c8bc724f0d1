"""Orders in which buffers are worth placing: what is hard to place comes first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memdiag.allocator.placement.model import Part
from memdiag.allocator.placement.sections import contention
from memdiag.trace.table import Array

Keys = tuple[Array, ...]


def _span(part: Part) -> Array:
    return (part.last - part.first).astype(np.float64)


# Each gives columns, the most important first; larger values go first. In turn: how long, how large, how crowded.
ORDERS: dict[str, Callable[[Part, Array], Keys]] = {
    "span, area": lambda part, crowd: (_span(part), _span(part) * part.size, crowd),
    "crowd, span": lambda part, crowd: (crowd, _span(part), part.size),
    "area, span": lambda part, crowd: (_span(part) * part.size, _span(part), crowd),
    "crowd, area": lambda part, crowd: (crowd, _span(part) * part.size, _span(part)),
    "size": lambda part, crowd: (part.size, _span(part), crowd),
    "size, root of span": lambda part, crowd: (part.size * np.sqrt(_span(part)), crowd),
    "crowd, size": lambda part, crowd: (crowd, part.size, _span(part)),
    "death": lambda part, crowd: (part.last, part.size, crowd),
    "birth": lambda part, crowd: (-part.first, part.size, crowd),
}


def by(keys: Keys) -> Array:
    """Returns the rows, those with the largest keys first; among equals in the order given."""
    return np.lexsort(tuple(-key for key in reversed(keys))).astype(np.int64)


def all_orders(part: Part) -> dict[str, Array]:
    """Returns every order of a part's members, by its name."""
    crowd = contention(part)
    return {name: by(keys(part, crowd)) for name, keys in ORDERS.items()}


def mixed(part: Part, crowd: Array, chance: np.random.Generator) -> Array:
    """Returns an order by a mixture of how long, how large, how crowded and how late, drawn at random.

    Long lives weigh most: in trials, most searches that found a tight placement quickly had such an order. Early or
    late first counts
    not at all, somewhat or much: where all lives are short, what is wrong on one side is then found before the other is
    looked at.
    """
    weights = chance.standard_normal(4)
    weights[0] = 1.0 + abs(weights[0])
    weights[2] /= 2
    weights[3] *= chance.integers(3)
    late = (part.first + part.last) / part.num_sections - 1.0
    columns = (np.log(_span(part)), np.log(part.size), np.log(crowd), late)
    score = sum(weight * _level(column) for weight, column in zip(weights, columns, strict=True))
    return np.argsort(-score, kind="stable").astype(np.int64)


def _level(column: Array) -> Array:
    """The column with mean 0 and deviation 1."""
    deviation = float(column.std())
    centred: Array = column - column.mean()
    return centred / deviation if deviation > 0 else centred
