"""Asks where the allocator stands at calls of modules: as deep in the model as takes next to nothing of a step.

Events without times (Ascend's) can only be told apart by counts, and an allocator asked for its counts makes all of its
statistics: some 20 microseconds. That is nothing beside a block of a large model, and a lot beside a small layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .marks import Position

_MOST = 0.03  # of a step
_BEGIN = 2  # calls within calls: the blocks of a model, and what they consist of
_DEEPEST = 12
_MORE_CALLS = 10  # on the next level, at most, as a rule


class Placing:
    """How deep, and what it takes. Call it for a position.

    Args:
        position: Where the allocator stands.
        is_quick: Whether to ask that costs nothing: then it is asked at every call, however deep.
        clock: Seconds, of the moment.

    Attributes:
        deepest: Calls within at most this many calls are placed; -1: none.
    """

    def __init__(
        self, position: Callable[[], Position], *, is_quick: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.deepest = 1 << 30 if is_quick else _BEGIN
        self._is_quick = is_quick
        self._ask = position
        self._clock = clock
        self._spent = 0.0
        self._step_began = -1.0
        self._too_deep = _DEEPEST + 1  # the least depth that took too long

    def __call__(self) -> Position:
        """Returns where the allocator stands."""
        if self._is_quick:
            return self._ask()
        began = self._clock()
        found = self._ask()
        self._spent += self._clock() - began
        return found

    def stepped(self) -> None:
        """Goes a level up or down, if that is what the step just done suggests."""
        if self._is_quick:
            return
        now, began, spent = self._clock(), self._step_began, self._spent
        self._step_began, self._spent = now, 0.0
        if began < 0:  # the first step compiles, fills caches and makes the optimizer's state
            return
        most = _MOST * (now - began)
        if spent > most and self.deepest >= 0:
            self._too_deep = self.deepest
            self.deepest -= 1
        elif spent and spent * _MORE_CALLS < most and self.deepest + 1 < self._too_deep:
            self.deepest += 1
