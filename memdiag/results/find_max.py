"""Result of ``memdiag record --find-max``: the largest value of a placeholder with which a command fits into memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ValueRange:
    """The values to search: ``low``, ``low + step``, … up to and including ``high`` if the steps reach it."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def last(self) -> int:
        """Index of the largest value, counted from 0."""
        return (self.high - self.low) // self.step

    def at(self, place: int) -> int:
        """Returns the value with this index."""
        return self.low + place * self.step


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        place: Position of the value in the range.
        value: The value that replaced the placeholder.
        fits: Whether the run ended without running out of memory.
        peak_reserved_bytes: Reserved peak of the process that needed the most memory; null: nothing was recorded.
        peak_allocated_bytes: Allocated peak of the process that needed the most memory; null: nothing was recorded.
        capacity_bytes: Memory of the device, if an out-of-memory error reported it.
        num_steps: Training steps of the process that completed the most steps.
        seconds: Duration of the program.
        folder: Folder of the run; null: it was deleted.
        failure: The out-of-memory error in one line; null: the run fits.
        caught: Failed allocations that did not end the program.
        unknown_bytes: Upper bound on scratch memory of cuDNN that a card may need beyond the simulated device; 0: none.
    """

    place: int
    value: int
    fits: bool
    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    capacity_bytes: int | None
    num_steps: int
    seconds: float
    folder: str
    failure: str = ""
    caught: int = 0
    unknown_bytes: int = 0

    @property
    def fits_surely(self) -> bool:
        """True if the run also fits with ``unknown_bytes`` more, or if the capacity is unknown."""
        need = (self.peak_reserved_bytes or 0) + self.unknown_bytes
        return self.fits and (self.capacity_bytes is None or need <= self.capacity_bytes)


@dataclass(frozen=True)
class LargestFit:
    """The answer, with the runs that it rests on.

    Attributes:
        values: The range that was searched.
        trials: Every run, in the order of the search.
        largest_fitting: Largest value that fits; null: not even the smallest one fits.
        smallest_failing: Smallest value that does not fit; null: all values fit.
        phantom_device: The simulated device; null: a real device.
        folder: Folder of the search.
    """

    values: ValueRange
    trials: tuple[Trial, ...]
    largest_fitting: int | None
    smallest_failing: int | None
    phantom_device: str | None
    folder: str

    @property
    def failing_below(self) -> int | None:
        """Largest tried value below ``largest_fitting`` that does not fit; None: all of them fit."""
        best = self.largest_fitting
        return max((one.value for one in self.trials if best and one.value < best and not one.fits), default=None)

    def trial_of(self, value: int | None) -> Trial | None:
        """Returns the run with a value; None: the value was not tried."""
        return next((trial for trial in self.trials if trial.value == value), None)
