"""Queries the allocator's position at module calls, down to a depth in the model with negligible overhead per step.

Events without times (Ascend's) can be ordered only by counts, and an allocator computes all of its statistics for each
query, which takes about 20 microseconds. That is negligible for a block of a large model, but not for a small layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .marks import Position

_MOST = 0.03  # fraction of a step
_BEGIN = 2  # nesting depth: the blocks of a model, and their parts
_DEEPEST = 12
_MORE_CALLS = 10  # usual growth factor of calls on the next level


class Placing:
    """The current depth and its cost. Call it for a position.

    Args:
        position: Returns the allocator's position.
        is_quick: Whether a query is free; then every call is placed, at any depth.
        clock: Returns the current time in seconds.

    Attributes:
        deepest: Largest nesting depth of placed calls, or -1 for none.
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
        self._too_deep = _DEEPEST + 1  # smallest depth that took too long

    def __call__(self) -> Position:
        """Returns the allocator's position."""
        if self._is_quick:
            return self._ask()
        began = self._clock()
        found = self._ask()
        self._spent += self._clock() - began
        return found

    def stepped(self) -> None:
        """Increases or decreases the depth if the last step suggests it."""
        if self._is_quick:
            return
        now, began, spent = self._clock(), self._step_began, self._spent
        self._step_began, self._spent = now, 0.0
        if began < 0:  # the first step compiles, fills caches and allocates the optimizer state
            return
        most = _MOST * (now - began)
        if spent > most and self.deepest >= 0:
            self._too_deep = self.deepest
            self.deepest -= 1
        elif spent and spent * _MORE_CALLS < most and self.deepest + 1 < self._too_deep:
            self.deepest += 1
