"""Result of ``memdiag record --find-max``: the largest value of a placeholder with which a command fits into memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ValueRange:
    """The values to search: ``low``, ``low + step``, … up to ``high``, which itself need not be one of them."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def last(self) -> int:
        """The place of the largest value; values are counted from 0."""
        return (self.high - self.low) // self.step

    def at(self, place: int) -> int:
        """The value at a place."""
        return self.low + place * self.step


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        place: Of the value in the range.
        value: The value that replaced the placeholder.
        fits: Whether the run ended without running out of memory.
        reserved_bytes, allocated_bytes: Peaks of the process that had most; None: nothing was recorded.
        capacity_bytes: Memory of the device, if an out-of-memory error reported it.
        steps: Training steps of the process that did most.
        seconds: How long the program ran.
        folder: Its files, as people would type it here.
        why: The out-of-memory error in one line; "" if it fits.
        caught: Failed allocations that did not end the program.
    """

    place: int
    value: int
    fits: bool
    reserved_bytes: int | None
    allocated_bytes: int | None
    capacity_bytes: int | None
    steps: int
    seconds: float
    folder: str
    why: str = ""
    caught: int = 0


@dataclass(frozen=True)
class LargestFit:
    """The answer, with the runs that it rests on.

    Attributes:
        values: The range that was searched.
        trials: Every run, in the order of the search.
        fits: The largest value that fits; None: not even the smallest does.
        fails: The smallest value that does not fit; None: all fit.
        phantom: The simulated device; None: a real one.
        folder: The files of the search, as people would type it here.
    """

    values: ValueRange
    trials: tuple[Trial, ...]
    fits: int | None
    fails: int | None
    phantom: str | None
    folder: str

    def trial_of(self, value: int | None) -> Trial | None:
        """Returns the run with a value; None: the value was not tried."""
        return next((trial for trial in self.trials if trial.value == value), None)
