"""The entry point of the planner: it takes columns and returns a verified ``Plan``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memdiag.allocator.placement import validator
from memdiag.allocator.placement.effort import Effort
from memdiag.allocator.placement.improve import solve, warm
from memdiag.allocator.placement.model import DEFAULT_LIMITS, Partition, Plan, SearchLimits, Solution
from memdiag.allocator.placement.sweeper import sweep
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.table import Array
from memdiag.units import format_bytes

MOST_UNITS = 1 << 61  # the sum of two heights still fits 64 bits


def plan(
    sizes: Array,
    lower: Array,
    upper: Array,
    align: int = 1,
    capacity: int | None = None,
    limits: SearchLimits = DEFAULT_LIMITS,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Returns a verified plan that gives each buffer one offset and is as low as possible.

    Args:
        sizes: Bytes; a buffer of 0 bytes gets offset 0.
        lower, upper: Lifetimes [lower, upper) in any unit of time (whole numbers); an empty one gets offset 0.
        align: Alignment of offsets in bytes.
        capacity: Bytes within which any plan suffices; None: search for the lowest plan.
        limits: How long to search.
        say: Called from time to time with a line about the progress.

    Raises:
        MemdiagError: A negative size, an alignment below 1, or more bytes than 64 bits hold.
    """
    sizes, lower, upper = (np.ascontiguousarray(column, np.int64) for column in (sizes, lower, upper))
    if not len(sizes) == len(lower) == len(upper):
        raise ValueError(f"{len(sizes)} sizes, {len(lower)} lower, {len(upper)} upper")
    if align < 1:
        raise MemdiagError(phrase("errors.alignment", align=str(align)), phrase("errors.align.hint"))
    if (sizes < 0).any():
        raise MemdiagError(
            phrase("errors.negative", row=str(int(np.argmax(sizes < 0)))), phrase("errors.negative.hint")
        )
    rows = np.flatnonzero((sizes > 0) & (lower < upper))
    if sum((sizes[rows] // align + 1).tolist()) >= MOST_UNITS // align:
        raise MemdiagError(phrase("errors.sizes-64"), phrase("errors.sizes-64.hint"))
    padded = -(-sizes[rows] // align) * align
    unit = int(np.gcd.reduce(padded)) if len(rows) else align
    partitions = sweep(padded // unit, lower[rows], upper[rows])
    warm()
    with Effort(limits.seconds, say) as effort:
        solutions, ended = _solve(partitions, None if capacity is None else capacity // unit, effort, limits, unit)
        offsets = np.zeros(len(sizes), np.int64)
        for partition, solution in zip(partitions, solutions, strict=True):
            offsets[rows[partition.buffer_idxs]] = (solution.offsets + partition.base) * unit
        highest = _highest(partitions, solutions)
        height = (partitions[highest].base + solutions[highest].height) * unit if partitions else 0
        made = Plan(
            offsets=offsets,
            height_bytes=height,
            load_bytes=max((partition.base + partition.bound for partition in partitions), default=0) * unit,
            bound_bytes=max(
                (partition.base + solution.bound for partition, solution in zip(partitions, solutions, strict=True)),
                default=0,
            )
            * unit,
            align=align,
            seconds=effort.seconds,
            method=solutions[highest].method if partitions else "trivial",
            ended=ended,
        )
    problems = validator.problems(made.offsets, sizes, lower, upper, align=align, height=made.height_bytes)
    if problems:
        raise AssertionError(f"the plan is wrong: {problems[0]}")
    return made


def _highest(partitions: list[Partition], solutions: list[Solution]) -> int:
    """Returns the number of the partition with the highest end."""
    return max(range(len(partitions)), key=lambda number: partitions[number].base + solutions[number].height, default=0)


def _solve(
    partitions: list[Partition], capacity: int | None, effort: Effort, limits: SearchLimits, unit: int
) -> tuple[list[Solution], str]:
    """Returns a solution for each partition, and why the search ended; it always improves the highest partition."""
    if not partitions:
        return [], "load"
    load = max(partition.base + partition.bound for partition in partitions)
    target = max(load, capacity or 0)
    making = [
        solve(partition, target - partition.base, effort, limits, only_target=capacity is not None)
        for partition in partitions
    ]
    solutions = [next(made) for made in making]
    while True:
        number = _highest(partitions, solutions)
        height, bound = (
            partitions[number].base + solutions[number].height,
            partitions[number].base + solutions[number].bound,
        )
        effort.say(f"{format_bytes(height * unit)}, {height / load:.4f} x load, after {effort.seconds:.0f} s")
        if height <= target:
            return solutions, "load" if height <= load else "capacity"
        if height <= bound:
            return solutions, "proved"
        if effort.is_over:
            return solutions, "time"
        better = next(making[number], None)
        if better is None:
            return solutions, "effort"
        solutions[number] = better
