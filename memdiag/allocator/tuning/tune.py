"""Searches for allocator settings by replay: single settings, pairs of the good ones, then neighbours of the best.

Each choice is first replayed only up to the peak of the recorded settings, which gives a lower bound of its result. If
another choice over the whole trace is already better in every value, the rest is not replayed. Replays release the GIL
and run in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from math import log2

from memdiag.allocator.tuning.space import EXPANDABLE, GRID, Choice, Space
from memdiag.allocator.versions.conf import Conf
from memdiag.results.tune import Score

# The peak must fall by this fraction to justify twice as many driver calls, or retries.
CALLS_PRICE, RETRIES_PRICE = 0.01, 0.02
# The same for an additional setting, or for a value that is not round: these may suit only this run.
SETTING_PRICE = 0.002
_NUM_BEST = 4  # choices whose neighbours are tried in each round
_MOST_ROUNDS = 6
_BATCH = 16
_TRIAL, _LEAST_CUT = 48, 0.35  # after this many choices, the fraction that must have been cut short

Evaluate = Callable[[Choice, bool], Score]  # arguments: a choice, and whether to replay it only up to the peak
Progress = Callable[[int, int], None]  # arguments: choices tried, and their total


@dataclass
class SearchState:
    """The state of a search.

    Attributes:
        scores: Scores of the choices replayed completely, by their parsed numbers per trace.
        choices: The choices of these scores.
        num_cut_short: Number of choices abandoned after the first part.
        is_complete: Whether the search ended before its limits.
    """

    scores: dict[tuple[Conf, ...], Score] = field(default_factory=dict)
    choices: dict[tuple[Conf, ...], Choice] = field(default_factory=dict)
    num_cut_short: int = 0
    is_complete: bool = True

    def ranked(self, baseline: Score) -> list[tuple[Choice, Score]]:
        """Returns all choices, the best first."""

        def rank(key: tuple[Conf, ...]) -> tuple[object, ...]:
            score, choice = self.scores[key], self.choices[key]
            return *merit(score, baseline, choice), score.num_driver_calls, str(choice)

        keys = sorted(self.scores, key=rank)
        return [(self.choices[key], self.scores[key]) for key in keys]

    def front(self) -> list[tuple[Choice, Score]]:
        """Returns the Pareto front: choices that no other dominates; smallest peak first, ties by shortest text.

        If some choices serve every request, those with failed requests are excluded: they hold less because they fail.
        """
        least = min(((score.num_failing, score.num_ooms) for score in self.scores.values()), default=(0, 0))
        shortest: dict[tuple[int, ...], tuple[Choice, Score]] = {}
        for key, score in self.scores.items():
            if (score.num_failing, score.num_ooms) != least:
                continue
            mine = self.choices[key], score
            other = shortest.get(score.axes)
            if other is None or (len(mine[0]), str(mine[0])) < (len(other[0]), str(other[0])):
                shortest[score.axes] = mine
        scores = [score for _, score in shortest.values()]
        best = [
            (choice, score)
            for choice, score in shortest.values()
            if not any(other.dominates(score) for other in scores)
        ]
        return sorted(best, key=lambda each: each[1].axes)


def merit(score: Score, baseline: Score, choice: Choice) -> tuple[float, ...]:
    """Returns the sort key to minimise: failed requests, then the peak plus a price for calls, retries and settings."""
    settings = len(choice) + sum(value not in GRID[key] for key, value in choice.items())
    calls = max(log2((score.num_driver_calls + 1) / (baseline.num_driver_calls + 1)), 0.0)
    price = 1 + CALLS_PRICE * calls + RETRIES_PRICE * log2(1 + score.num_retries) + SETTING_PRICE * settings
    return score.num_failing, score.num_ooms, score.peak * price


class _Search:
    def __init__(
        self, space: Space, evaluate: Evaluate, most: int, seconds: float, progress: Progress | None, threads: int
    ) -> None:
        self.space, self.evaluate, self.most, self.progress = space, evaluate, most, progress
        self.until = time.monotonic() + seconds
        self.found = SearchState()
        self.seen: set[tuple[Conf, ...]] = set()
        self.pool = ThreadPoolExecutor(threads)

    def fresh(self, choices: Iterable[Choice]) -> Iterator[tuple[tuple[Conf, ...], Choice]]:
        for choice in choices:
            if len(self.seen) >= self.most:
                return
            key = self.space.numbers(choice)
            if key is not None and key not in self.seen:
                self.seen.add(key)
                yield key, choice

    def try_all(self, choices: Iterable[Choice]) -> None:
        waiting = self.fresh(choices)
        while batch := list(islice(waiting, _BATCH)):
            if self.found.scores and time.monotonic() > self.until:
                self.found.is_complete = False
                return
            for (key, choice), score in zip(
                batch, self.pool.map(self.score, [choice for _, choice in batch]), strict=True
            ):
                if score is None:
                    self.found.num_cut_short += 1
                else:
                    self.found.scores[key], self.found.choices[key] = score, choice
            if self.progress is not None:
                self.progress(len(self.seen), self.most)

    def score(self, choice: Choice) -> Score | None:
        known = list(self.found.scores.values())
        if known and self.is_part_worth:
            part = self.evaluate(choice, True)
            if any(score.dominates(part) for score in known):
                return None
        return self.evaluate(choice, False)

    @property
    def is_part_worth(self) -> bool:
        """Returns whether replaying only the first part has saved more time than it cost so far."""
        return len(self.seen) < _TRIAL or self.found.num_cut_short > _LEAST_CUT * len(self.seen)

    @property
    def is_over(self) -> bool:
        return not self.found.is_complete or len(self.seen) >= self.most


def search(
    space: Space,
    recorded: Choice,
    baseline: Score,
    evaluate: Evaluate,
    *,
    most: int = 400,
    seconds: float = 60.0,
    progress: Progress | None = None,
    threads: int = 2,
) -> SearchState:
    """Returns the result of a search.

    Args:
        space: The possible choices.
        recorded: The recorded settings that belong to a choice.
        baseline: Score of the recorded settings.
        evaluate: Replays a choice completely, or (True) only its first part. Called from several threads.
        most: Number of choices to evaluate.
        seconds: Time after which no new choices are evaluated.
        progress: Called from time to time.
    """
    work = _Search(space, evaluate, most, seconds, progress, threads)
    with work.pool:
        work.try_all([recorded, {}, {EXPANDABLE: "True"}])
        bases: list[Choice] = [{}, {EXPANDABLE: "True"}, recorded]
        for base in bases:
            work.try_all(space.singles(base))
        work.try_all(space.pairs(_good_values(work.found, baseline)))
        for _ in range(_MOST_ROUNDS):
            if work.is_over:
                break
            before = [choice for choice, _ in work.found.ranked(baseline)[:_NUM_BEST]]
            front = [choice for choice, _ in work.found.front()[:_NUM_BEST]]
            for choice in [*before, *front]:
                work.try_all(space.neighbours(choice))
            if before == [choice for choice, _ in work.found.ranked(baseline)[:_NUM_BEST]]:
                break
    return work.found


def _good_values(found: SearchState, baseline: Score) -> list[tuple[str, str]]:
    """Returns the two best values of every key, ordered by their savings."""
    values: dict[tuple[str, str], None] = {}
    counts: dict[str, int] = {}
    for choice, _ in found.ranked(baseline):
        for key, value in choice.items():
            if (key, value) not in values and counts.get(key, 0) < 2:
                values[key, value] = None
                counts[key] = counts.get(key, 0) + 1
    return list(values)


def recommendable(space: Space, found: SearchState, baseline: Score, evaluate: Evaluate) -> list[tuple[Choice, Score]]:
    """Returns all choices, the best first. The best one has no key whose gain is below its price.

    The best one may be outside the Pareto front: a longer line with a slightly smaller peak dominates it, but ranks
    lower.
    """
    ranked = found.ranked(baseline)
    while True:
        for key in ranked[0][0]:
            shorter = {other: value for other, value in ranked[0][0].items() if other != key}
            numbers = space.numbers(shorter)
            if numbers is not None and numbers not in found.scores:
                found.scores[numbers] = evaluate(shorter, False)
                found.choices[numbers] = shorter
        before, ranked = ranked, found.ranked(baseline)
        if before[0] == ranked[0]:
            return ranked
