"""Makes one part as low as it can be made: quick orders first, then the search for lower and lower heights.

Searches have a heavy tail: the right order finds a placement after a few hundred steps, a wrong one never. So there are
many short ones, each in another order, and longer ones only bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from memdiag.allocator.placement import canonical
from memdiag.allocator.placement.effort import WAVE, Attempt, Effort, Outcome
from memdiag.allocator.placement.firstfit import ONE_PASS, first_fit, online
from memdiag.allocator.placement.model import Answer, Part
from memdiag.allocator.placement.orders import ORDERS, all_orders, mixed
from memdiag.allocator.placement.sections import contention
from memdiag.trace.table import Array

MANY = 20_000  # buffers from which on not every order is tried with first fit
FEW_ORDERS = ("crowd, span", "area, span", "size", "span, area")
MOST_TO_SEARCH = 70_000  # a step looks at all that is not yet placed
LARGE = 5_000  # buffers
PASSES = 4
PLAIN_WAVES = -(-len(ORDERS) // WAVE)
LONELY = 16  # of so many waves one is for a height above the target, where only the target counts
PATIENCE = 24  # waves without a gain, once it is within NEAR of the bound
NEAR = 1.002
STEPS_OF_ROOM = 20_000_000_000  # that checking sections may take in one descent


def solve(
    part: Part, target: int, effort: Effort, seed: int, *, only_target: bool = False, rounds: int | None = None
) -> Iterator[Answer]:
    """Yields better and better placements of a part, until one is no higher than ``target``, or no better one is to be found.

    Args:
        part: Its buffers.
        target: Units, without its base.
        effort: Time and threads.
        seed: Of what is left to chance.
        only_target: Anything above the target is of little use.
        rounds: Waves of search at most; None: as many as the time allows.
    """
    answer = Answer(bound=part.bound)
    if part.num_sections == 1:
        offsets = np.cumsum(part.size) - part.size
        yield Answer(offsets, part.bound, "stacked", part.bound, exhausted=True)
        return
    target = max(target, part.bound)
    _take(answer, Outcome(*online(part.first, part.last, part.size, tightest=False)), "online")
    yield answer  # whatever the time: something must be found
    if answer.height <= target or effort.is_over:
        return
    orders = all_orders(part)
    reached: dict[str, int] = {}
    for name, attempts in _quick(part, orders):
        for k, outcome in enumerate(effort.run(attempts, target)):
            _take(answer, outcome, f"first fit ({name[k]})" if name[k] in orders else name[k])
            if outcome.offsets is not None and name[k] in orders:
                reached[name[k]] = outcome.height
        yield answer
        if answer.height <= target or effort.is_over:
            return
    if len(part.members) <= MOST_TO_SEARCH:
        if len(part.members) > LARGE:  # go on from what did best
            orders = {name: orders[name] for name in sorted(orders, key=lambda name: reached.get(name, 1 << 62))}
        most = rounds if rounds is not None else 1 << 62
        yield from _search(
            part, target, effort, seed, answer, list(orders.values()), LONELY if only_target else 2, most
        )
    answer.exhausted = not effort.is_over
    yield answer


def _take(answer: Answer, outcome: Outcome, method: str) -> bool:
    """Keeps what is lower than all before."""
    if outcome.offsets is None or (len(answer.offsets) and outcome.height >= answer.height):
        return False
    answer.offsets, answer.height, answer.method = outcome.offsets, outcome.height, method
    return True


def _quick(part: Part, orders: dict[str, Array]) -> Iterator[tuple[list[str], list[Attempt]]]:
    """Attempts by rules of thumb, in waves."""

    def in_time(stop: Array) -> Outcome:
        offsets, height = online(part.first, part.last, part.size, tightest=True, stop=stop)
        return Outcome(offsets, height) if height >= 0 else Outcome()

    yield ["online"], [in_time]
    if len(part.members) > ONE_PASS:
        return
    names = [name for name in orders if len(part.members) <= MANY or name in FEW_ORDERS]
    for k in range(0, len(names), WAVE):
        yield names[k : k + WAVE], [partial(_in_order, part, orders[name]) for name in names[k : k + WAVE]]


def _in_order(part: Part, order: Array, stop: Array) -> Outcome:
    """First fit in one order."""
    offsets, height = first_fit(order, part.first, part.last, part.size, stop)
    return Outcome(offsets, height) if height >= 0 else Outcome()


class _Chain:
    """First fit over and over: what ended too high goes earlier in the next order, some way by chance (squeaky wheels are oiled)."""

    def __init__(self, part: Part, order: Array) -> None:
        self._part = part
        self._order = order

    def passes(self, aim: int, chance: np.random.Generator, stop: Array) -> Outcome:
        """Returns the best of some passes; the next call goes on from the last."""
        part, best = self._part, Outcome()
        for _ in range(PASSES):
            found = _in_order(part, self._order, stop)
            if found.offsets is None:
                break
            if best.offsets is None or found.height < best.height:
                best = found
            if best.height <= aim:
                break
            place = np.empty(len(self._order))
            place[self._order] = np.arange(1, len(self._order) + 1)
            high = found.offsets + part.size > aim
            place[high] *= chance.random(int(high.sum()))
            self._order = np.argsort(place, kind="stable")
        return best


def _tracked(part: Part) -> tuple[Array, Array, Array]:
    """The sections whose room is checked, all of a small part, the most crowded of a large one: seen from, to, and their load."""
    num = max(STEPS_OF_ROOM // len(part.members) ** 2, 32)
    if num >= part.num_sections:
        return part.first, part.last, part.load
    crowded = np.argsort(-part.load, kind="stable")[: num // 2]
    edges = np.linspace(0, part.num_sections, num // 2 + 1).astype(np.int64)
    spread = [begin + int(np.argmax(part.load[begin:end])) for begin, end in pairwise(edges.tolist())]
    rows = np.unique(np.concatenate((crowded, np.array(spread, np.int64))))
    seen_from, seen_to = np.searchsorted(rows, part.first), np.searchsorted(rows, part.last)
    return seen_from.astype(np.int64), seen_to.astype(np.int64), part.load[rows]


def _search(
    part: Part,
    target: int,
    effort: Effort,
    seed: int,
    answer: Answer,
    orders: list[Array],
    between: int,
    most_waves: int,
) -> Iterator[Answer]:
    """Searches by waves: the first goes for the target; where it fails, one of ``between`` for what lies between."""
    n = len(part.members)
    tracked, crowd = _tracked(part), contention(part)
    split_every = 1 if n <= 2_000 else 1 + n // 500

    def attempt(order: Array, height: int, limit: int, stop: Array) -> Outcome:
        ended, offsets, _ = canonical.look_for(
            part.first, part.last, part.size, order, tracked, height, limit=limit, split_every=split_every, stop=stop
        )
        if ended == canonical.FOUND:
            return Outcome(offsets, int((offsets + part.size).max()))
        return Outcome(impossible=ended == canonical.IMPOSSIBLE)

    chains = [_Chain(part, order) for order in orders[:WAVE]]
    middle, idle, tried, wave = 0.5, 0, 0, 0
    ruled_out = False
    while answer.height > target and wave < most_waves and not effort.is_over:
        if n > LARGE:  # a descent takes long, and hardly any reaches the target at once
            for_target = wave % LONELY == LONELY - 1
        else:
            for_target = not ruled_out and (wave < PLAIN_WAVES or wave % between != 0)
        aim = target if for_target else target + int((answer.height - target) * middle)
        limit = _limit(n, wave)
        attempts: list[Attempt] = []
        for _ in range(WAVE):
            order = orders[tried] if tried < len(orders) else mixed(part, crowd, np.random.default_rng((seed, tried)))
            attempts.append(partial(attempt, order, aim, limit))
            tried += 1
        if n > LARGE and wave % 4 != 3:  # passes of first fit are quick beside a descent
            attempts = [
                partial(chain.passes, aim, np.random.default_rng((seed, wave, k))) for k, chain in enumerate(chains)
            ]
        outcomes = effort.run(attempts, aim)
        gained = [_take(answer, outcome, "search") for outcome in outcomes]
        ruled_out = any(outcome.impossible for outcome in outcomes)
        if ruled_out:  # then halve what is left between
            middle = 0.5
            answer.bound = max(answer.bound, aim + 1)
            target = max(target, answer.bound)
        idle = 0 if any(gained) else idle + 1
        if not for_target and not ruled_out:
            middle = max(middle / 2, 1 / 16) if any(gained) else (1 + middle) / 2
        wave += 1
        effort.say(f"{wave * WAVE} searches")
        yield answer
        if idle >= PATIENCE and answer.height <= target * NEAR:
            return


def _limit(n: int, wave: int) -> int:
    """Steps of each search of a wave: mostly few, now and then more (Luby's sequence); plain orders are worth more than chance."""
    k = wave + 1
    while k & (k + 1):
        k -= (1 << (k.bit_length() - 1)) - 1
    worth = max((k + 1) // 2, 4 if wave < PLAIN_WAVES else 1)
    return (n + 1_000) * 2 * worth if n <= LARGE else n + n // 10 * ((k + 1) // 2)


def warm() -> None:
    """Has everything compiled, so that it takes none of the time that is given for a plan."""
    first, last, size = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1, 2, 1])
    first_fit(np.arange(3), first, last, size)
    room = (first, last, np.array([3, 3]))
    canonical.look_for(first, last, size, np.arange(3), room, 3, limit=10, split_every=1, stop=np.zeros(1, np.int64))
