"""Decides which optimizer steps end a training step, so that an iteration with several optimizers is one step."""

from __future__ import annotations

import weakref
from typing import Any

PATIENCE = 8  # steps of one optimizer that end no training step; a critic usually takes 2 to 5 per step of the actor


class StepEnds:
    """Finds the end of each iteration from the order in which optimizers step.

    With one optimizer, each of its steps ends a training step. With several, the optimizer that took its first step
    last ends it, and if this one steps several times in a row, only the first time. An optimizer that takes more than
    ``PATIENCE`` steps meanwhile ends a training step each time again. The order alone does not tell a critic with many
    steps per iteration from an optimizer that steps once in many iterations.
    """

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any] | None] = {}  # by id
        self._closer, self._previous = 0, 0  # ids of optimizers
        self._closes_each = True  # whether each step of the closer ends a training step
        self._waiting: dict[int, int] = {}  # by id: steps since the last end of a training step

    def ends(self, optimizer: Any) -> bool:
        """Returns whether this step of an optimizer ends a training step."""
        number = id(optimizer)
        was, self._previous = self._previous, number
        if number not in self._known or _is_gone(self._known[number]):
            return self._first_step_of(optimizer)
        if number == self._closer and (self._closes_each or was != number):
            self._waiting.clear()
            return True
        self._waiting[number] = self._waiting.get(number, 0) + 1
        if self._waiting[number] <= PATIENCE:
            return False
        self._closer, self._closes_each = number, True
        self._waiting.clear()
        return True

    def _first_step_of(self, optimizer: Any) -> bool:
        """An earlier optimizer has ended the first iteration of both already, if it still exists."""
        self._known = {number: known for number, known in self._known.items() if not _is_gone(known)}
        self._closes_each = not self._known
        self._known[id(optimizer)] = _reference(optimizer)
        self._closer = id(optimizer)
        self._waiting.clear()
        return self._closes_each


def _reference(optimizer: Any) -> weakref.ref[Any] | None:
    """Returns a reference that does not keep an optimizer alive; None if its class allows none."""
    try:
        return weakref.ref(optimizer)
    except TypeError:
        return None


def _is_gone(known: weakref.ref[Any] | None) -> bool:
    """Returns whether an optimizer no longer exists, so that another one may have its id."""
    return known is not None and known() is None
