"""Places buffers around pinned ones: first fit in several orders, which learn from the previous result.

Plans of a repeating step need this: a tensor that lives across the end of the step is pinned, and uses one offset in
two intervals of time. The search for tight placements (``solver``) does not support such tensors.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement import validator
from memdiag.allocator.placement.firstfit import ONE_PASS, first_fit
from memdiag.allocator.placement.model import Partition
from memdiag.allocator.placement.orders import all_orders
from memdiag.allocator.placement.sweeper import load_of, section_spans
from memdiag.trace.table import Array

MANY = 20_000  # number of buffers above which only some orders are tried
FEW_ORDERS = ("crowd, span", "area, span", "size", "span, area")
PASSES = 12  # passes that start from the best order
ENOUGH = 1.002  # a height of this times the load is low enough


def place_around(size: Array, lower: Array, upper: Array, fixed: Array, align: int = 1) -> tuple[Array, int]:
    """Returns offsets and height, pins included; the placement has been verified.

    Args:
        size, lower, upper: Bytes, multiples of ``align``, above 0; lifetimes [lower, upper), none of them empty
        (int64).
        pins: The pinned buffers: rows offset, size, lower, upper (int64).
        align: Alignment of all offsets.
    """
    count = len(size)
    all_size, all_lower, all_upper = (
        np.concatenate(pair) for pair in ((size, fixed[1]), (lower, fixed[2]), (upper, fixed[3]))
    )
    load = load_of(all_size, all_lower, all_upper)
    section_lower, section_upper, num_sections = section_spans(all_lower, all_upper)
    change = np.zeros(num_sections + 1, np.int64)
    np.add.at(change, section_lower, all_size)
    np.add.at(change, section_upper, -all_size)
    partition = Partition(
        np.arange(count), 0, section_lower[:count], section_upper[:count], size, np.cumsum(change)[:-1]
    )
    by_place = np.argsort(fixed[0], kind="stable")
    placed = np.stack((fixed[0], fixed[0] + fixed[1], section_lower[count:], section_upper[count:]))[
        :, by_place
    ].astype(np.int64)
    orders = all_orders(partition)
    names = list(orders) if count <= MANY else list(FEW_ORDERS[: 1 if count > ONE_PASS else len(FEW_ORDERS)])
    best, height, order = np.zeros(count, np.int64), 1 << 62, orders[names[0]]
    for name in names:
        found = first_fit(orders[name], partition.lower, partition.upper, size, fixed=placed)
        if found[1] < height:
            best, height, order = *found, orders[name]
        if height <= load * ENOUGH:
            break
    chance = np.random.default_rng(0)
    for _ in range(PASSES if count <= MANY else 0):
        if height <= load * ENOUGH:
            break
        place = np.empty(count)
        place[order] = np.arange(1, count + 1)
        high = found[0] + size > load
        place[high] *= chance.random(int(high.sum()))
        order = np.argsort(place, kind="stable")
        found = first_fit(order, partition.lower, partition.upper, size, fixed=placed)
        if found[1] < height:
            best, height = found
    problems = validator.problems(
        np.concatenate((best, fixed[0])), all_size, all_lower, all_upper, align=align, height=height
    )
    if problems:
        raise AssertionError(f"the plan is wrong: {problems[0]}")
    return best, height
