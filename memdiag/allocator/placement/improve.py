"""Lowers the placement of one partition: first by quick orders, then by searches for ever lower heights.

Searches have a heavy tail: a good order finds a placement after a few hundred steps, a bad one never does. The module
therefore runs many short searches in different orders, and gradually longer ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from memdiag.allocator.placement import solver
from memdiag.allocator.placement.effort import WAVE, Attempt, Effort, Outcome
from memdiag.allocator.placement.firstfit import ONE_PASS, first_fit, online
from memdiag.allocator.placement.model import Lifespans, Partition, SearchLimits, Solution
from memdiag.allocator.placement.orders import ORDERS, all_orders, mixed
from memdiag.allocator.placement.sweeper import highest_totals
from memdiag.trace.table import Array

MANY = 20_000  # number of buffers above which first fit tries only some orders
FEW_ORDERS = ("crowd, span", "area, span", "size", "span, area")
MOST_TO_SEARCH = 70_000  # buffers; each step visits all unplaced ones
LARGE = 5_000  # number of buffers
PASSES = 4
PLAIN_WAVES = -(-len(ORDERS) // WAVE)
LONELY = 16  # with ``only_target``, one of this many waves aims above the target
PATIENCE = 24  # waves without improvement after which the search ends, if the height is within NEAR of the bound
NEAR = 1.002
STEPS_OF_ROOM = 20_000_000_000  # steps for checking sections in one descent


def solve(
    partition: Partition,
    target: int,
    effort: Effort,
    limits: SearchLimits,
    *,
    only_target: bool = False,
) -> Iterator[Solution]:
    """Yields ever lower placements of a partition, until ``target`` is reached or the search finds no lower one.

    Args:
        partition: The buffers.
        target: Height in units, without the base.
        effort: Time limit and threads.
        only_target: Whether a height above the target is of little use.
        limits: Random seed, and the number of waves of search.
    """
    solution = Solution(bound=partition.bound)
    if partition.num_sections == 1:
        offsets = np.cumsum(partition.size) - partition.size
        yield Solution(offsets, partition.bound, "stacked", partition.bound, exhausted=True)
        return
    target = max(target, partition.bound)
    _take(solution, Outcome(*online(partition.lower, partition.upper, partition.size, tightest=False)), "online")
    yield solution  # one placement is found even after the time limit
    if solution.height <= target or effort.is_over:
        return
    orders = all_orders(partition)
    reached: dict[str, int] = {}
    for name, attempts in _quick(partition, orders):
        for number, outcome in enumerate(effort.run(attempts, target)):
            _take(solution, outcome, f"first fit ({name[number]})" if name[number] in orders else name[number])
            if outcome.offsets is not None and name[number] in orders:
                reached[name[number]] = outcome.height
        yield solution
        if solution.height <= target or effort.is_over:
            return
    if len(partition.buffer_idxs) <= MOST_TO_SEARCH:
        if len(partition.buffer_idxs) > LARGE:  # continue from the best order
            orders = {name: orders[name] for name in sorted(orders, key=lambda name: reached.get(name, 1 << 62))}
        most = limits.rounds if limits.rounds is not None else 1 << 62
        yield from _search(
            partition, target, effort, limits.seed, solution, list(orders.values()), LONELY if only_target else 2, most
        )
    solution.exhausted = not effort.is_over
    yield solution


def _take(solution: Solution, outcome: Outcome, method: str) -> bool:
    """Stores the outcome if it is lower than all earlier ones."""
    if outcome.offsets is None or (len(solution.offsets) and outcome.height >= solution.height):
        return False
    solution.offsets, solution.height, solution.method = outcome.offsets, outcome.height, method
    return True


def _quick(partition: Partition, orders: dict[str, Array]) -> Iterator[tuple[list[str], list[Attempt]]]:
    """Runs heuristic attempts, in waves."""

    def in_time(stop: Array) -> Outcome:
        offsets, height = online(partition.lower, partition.upper, partition.size, tightest=True, stop=stop)
        return Outcome(offsets, height) if height >= 0 else Outcome()

    yield ["online"], [in_time]
    if len(partition.buffer_idxs) > ONE_PASS:
        return
    names = [name for name in orders if len(partition.buffer_idxs) <= MANY or name in FEW_ORDERS]
    for number in range(0, len(names), WAVE):
        yield (
            names[number : number + WAVE],
            [partial(_in_order, partition, orders[name]) for name in names[number : number + WAVE]],
        )


def _in_order(partition: Partition, order: Array, stop: Array) -> Outcome:
    """Returns the attempt of first fit in one order."""
    offsets, height = first_fit(order, partition.lower, partition.upper, partition.size, stop)
    return Outcome(offsets, height) if height >= 0 else Outcome()


class _Chain:
    """Repeated first fit: buffers that ended too high move forward in the next order by random steps.

    This is squeaky wheel optimization.
    """

    def __init__(self, partition: Partition, order: Array) -> None:
        self._part = partition
        self.order = order

    def passes(self, aim: int, chance: np.random.Generator, stop: Array) -> Outcome:
        """Returns the best of some passes; the next call continues from the last one."""
        partition, best = self._part, Outcome()
        for _ in range(PASSES):
            found = _in_order(partition, self.order, stop)
            if found.offsets is None:
                break
            if best.offsets is None or found.height < best.height:
                best = found
            if best.height <= aim:
                break
            place = np.empty(len(self.order))
            place[self.order] = np.arange(1, len(self.order) + 1)
            high = found.offsets + partition.size > aim
            place[high] *= chance.random(int(high.sum()))
            self.order = np.argsort(place, kind="stable")
        return best


def _tracked(partition: Partition) -> tuple[Array, Array, Array]:
    """Returns the sections whose room is checked: all of a small partition, the fullest of a large one.

    The result has per buffer its first tracked section and the one after its last, and the total of each section.
    """
    num = max(STEPS_OF_ROOM // len(partition.buffer_idxs) ** 2, 32)
    if num >= partition.num_sections:
        return partition.lower, partition.upper, partition.total
    crowded = np.argsort(-partition.total, kind="stable")[: num // 2]
    edges = np.linspace(0, partition.num_sections, num // 2 + 1).astype(np.int64)
    spread = [begin + int(np.argmax(partition.total[begin:end])) for begin, end in pairwise(edges.tolist())]
    rows = np.unique(np.concatenate((crowded, np.array(spread, np.int64))))
    tracked_lower, tracked_upper = np.searchsorted(rows, partition.lower), np.searchsorted(rows, partition.upper)
    return tracked_lower.astype(np.int64), tracked_upper.astype(np.int64), partition.total[rows]


def _search(
    partition: Partition,
    target: int,
    effort: Effort,
    seed: int,
    solution: Solution,
    orders: list[Array],
    between: int,
    most_waves: int,
) -> Iterator[Solution]:
    """Searches in waves: the first aims at the target; after a failure, one of ``between`` aims at a height above."""
    num_buffers = len(partition.buffer_idxs)
    tracked, total = _tracked(partition), highest_totals(partition)
    split_every = 1 if num_buffers <= 2_000 else 1 + num_buffers // 500

    def attempt(order: Array, height: int, limit: int, stop: Array) -> Outcome:
        ended, offsets, _ = solver.place_below(
            partition.spans,
            order,
            tracked,
            height,
            limit=limit,
            split_every=split_every,
            stop=stop,
        )
        if ended == solver.FOUND:
            return Outcome(offsets, int((offsets + partition.size).max()))
        return Outcome(impossible=ended == solver.IMPOSSIBLE)

    chains = [_Chain(partition, order) for order in orders[:WAVE]]
    middle, idle, tried, wave = 0.5, 0, 0, 0
    ruled_out = False
    while solution.height > target and wave < most_waves and not effort.is_over:
        if num_buffers > LARGE:  # a descent takes long, and rarely reaches the target directly
            for_target = wave % LONELY == LONELY - 1
        else:
            for_target = not ruled_out and (wave < PLAIN_WAVES or wave % between != 0)
        aim = target if for_target else target + int((solution.height - target) * middle)
        limit = _limit(num_buffers, wave)
        attempts: list[Attempt] = []
        for _ in range(WAVE):
            order = (
                orders[tried] if tried < len(orders) else mixed(partition, total, np.random.default_rng((seed, tried)))
            )
            attempts.append(partial(attempt, order, aim, limit))
            tried += 1
        if num_buffers > LARGE and wave % 4 != 3:  # passes of first fit are much faster than a descent
            attempts = [
                partial(chain.passes, aim, np.random.default_rng((seed, wave, number)))
                for number, chain in enumerate(chains)
            ]
        orders_before = [chain.order for chain in chains]
        outcomes = effort.run(attempts, aim)
        for chain, order_before, outcome in zip(chains, orders_before, outcomes, strict=False):
            if outcome.offsets is None:  # it was stopped at a time that depends on the load of the machine
                chain.order = order_before
        gained = [_take(solution, outcome, "search") for outcome in outcomes]
        ruled_out = any(outcome.impossible for outcome in outcomes)
        if ruled_out:  # halve the remaining interval
            middle = 0.5
            solution.bound = max(solution.bound, aim + 1)
            target = max(target, solution.bound)
        idle = 0 if any(gained) else idle + 1
        if not for_target and not ruled_out:
            middle = max(middle / 2, 1 / 16) if any(gained) else (1 + middle) / 2
        wave += 1
        effort.say(f"{wave * WAVE} searches")
        yield solution
        if idle >= PATIENCE and solution.height <= target * NEAR:
            return


def _limit(num_buffers: int, wave: int) -> int:
    """Returns the step limit of the searches of a wave, by Luby's sequence: mostly small, sometimes larger.

    Waves of plain orders get more steps than those of random orders.
    """
    term = wave + 1
    while term & (term + 1):
        term -= (1 << (term.bit_length() - 1)) - 1
    worth = max((term + 1) // 2, 4 if wave < PLAIN_WAVES else 1)
    return (
        (num_buffers + 1_000) * 2 * worth
        if num_buffers <= LARGE
        else num_buffers + num_buffers // 10 * ((term + 1) // 2)
    )


def warm() -> None:
    """Compiles all functions, so that compilation does not count against the time limit of a plan."""
    lower, upper, size = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1, 2, 1])
    first_fit(np.arange(3), lower, upper, size)
    room = (lower, upper, np.array([3, 3]))
    solver.place_below(
        Lifespans(lower, upper, size), np.arange(3), room, 3, limit=10, split_every=1, stop=np.zeros(1, np.int64)
    )
