"""Result of ``memdiag record --find-max``: the largest placeholder value with which a command fits into memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ValueRange:
    """The values to search: ``low``, ``low + step``, … up to ``high``, which need not be one of them."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def last(self) -> int:
        """The index of the largest value, counted from 0."""
        return (self.high - self.low) // self.step

    def at(self, place: int) -> int:
        """Returns the value at an index."""
        return self.low + place * self.step


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        place: Index of the value in the range.
        value: The value that replaced the placeholder.
        fits: Whether the run ended without an out-of-memory error.
        reserved_bytes, allocated_bytes: Peaks of the process with the highest peak, or None if nothing was recorded.
        capacity_bytes: Memory of the device, if an out-of-memory error reported it.
        steps: Training steps of the process with the most steps.
        seconds: How long the program ran.
        folder: Its files, as a path relative to the current directory where possible.
        why: The out-of-memory error in one line, or "" if it fits.
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
    """The result of the search, with the runs it is based on.

    Attributes:
        values: The range that was searched.
        trials: Every run, in the order of the search.
        fits: The largest value that fits, or None if even the smallest does not.
        fails: The smallest value that does not fit, or None if all fit.
        phantom: The simulated device, or None for a real one.
        folder: The files of the search, as a path relative to the current directory where possible.
    """

    values: ValueRange
    trials: tuple[Trial, ...]
    fits: int | None
    fails: int | None
    phantom: str | None
    folder: str

    def trial_of(self, value: int | None) -> Trial | None:
        """Returns the run with a value, or None if the value was not tried."""
        return next((trial for trial in self.trials if trial.value == value), None)
