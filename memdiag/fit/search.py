"""Chooses the configuration to run next, and infers outcomes of others from the runs so far.

Larger values of a growing axis need at least as much memory, so one run decides others: if it fits, so does each
configuration with smaller values (and otherwise the same); if it fails, so does each with larger ones. A linear model
of the logarithm of the peak, fitted to the runs so far, predicts where memory ends. The next run is the configuration
that is expected to decide most. A prediction only orders the runs: it never decides an outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memdiag.fit.expressions import number
from memdiag.fit.grid import Grid
from memdiag.results.fit import GridAxis
from memdiag.trace.table import Array

Cell = tuple[int, ...]

# Assumed before any run: log(peak) grows by so much for each unit of log(value), on growing axes and on others (ranks
# that share the work); and how much runs count against that.
_SLOPE, _OTHER_SLOPE, _PRIOR = 0.7, -0.5, 0.05
_NEAR = 0.03  # standard deviation of log(peak) between two runs of the same line


@dataclass(frozen=True)
class Outcome:
    """What a run showed: its reserved peak in bytes, and whether it fits on each device. An error has neither."""

    peak_bytes: int | None = None
    fits: tuple[bool, ...] = ()


@dataclass
class Search:
    """The state of a search on one kind of device.

    Attributes:
        grid: The configurations.
        usable_bytes: Memory that PyTorch can reserve on each device.
        is_exhaustive: Whether every configuration is run.
        outcomes: The runs so far.
    """

    grid: Grid
    usable_bytes: tuple[int, ...]
    is_exhaustive: bool = False
    outcomes: dict[Cell, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._growing = [at for at, axis in enumerate(self.grid.axes) if axis.is_growing]
        self._lines: dict[Cell, list[Cell]] = {}
        for cell in self.grid.cells:
            self._lines.setdefault(self.line_of(cell), []).append(cell)
        self._slopes = self._usual_slopes()
        self._features = {cell: self._feature(cell) for cell in self.grid.cells}

    def line_of(self, cell: Cell) -> Cell:
        """Returns the part of a configuration that growing axes do not change."""
        return tuple(at for place, at in enumerate(cell) if place not in self._growing)

    def decided(self, cell: Cell, device: int) -> tuple[bool, Cell] | None:
        """Returns whether a configuration fits on a device, and the run that decides it, or None if none does yet."""
        if (own := self.outcomes.get(cell)) is not None:
            return (own.fits[device], cell) if own.fits else None
        if self.is_exhaustive:
            return None
        for other in self._lines[self.line_of(cell)]:
            known = self.outcomes.get(other)
            if known is None or not known.fits:
                continue
            if known.fits[device] and self._is_below(cell, other):
                return True, other
            if not known.fits[device] and self._is_below(other, cell):
                return False, other
        return None

    def undecided(self) -> list[Cell]:
        """Returns the configurations that no run decides yet on some device, without those that were run."""
        devices = range(len(self.usable_bytes))
        return [
            cell
            for cell in self.grid.cells
            if cell not in self.outcomes and any(self.decided(cell, device) is None for device in devices)
        ]

    def next(self, busy: Sequence[Cell] = ()) -> Cell | None:
        """Returns the configuration to run next, or None if there is no more to start.

        Args:
            busy: Configurations that are running now. Their lines wait, since the outcome may decide the rest.
        """
        lines = {self.line_of(cell) for cell in busy}
        left = [cell for cell in self.undecided() if cell not in busy]
        if not self.is_exhaustive:
            left = [cell for cell in left if self.line_of(cell) not in lines]
        if not left:
            return None
        model = self._model()
        return max(left, key=lambda cell: self._gain(cell, model))

    def num_left_at_most(self) -> int:
        """Returns an upper bound of the runs that are still needed: in each line, halving the undecided part."""
        devices = range(len(self.usable_bytes))
        total = 0
        for cells in self._lines.values():
            counts = [
                sum(cell not in self.outcomes and self.decided(cell, device) is None for cell in cells)
                for device in devices
            ]
            most = max(counts)
            total += (
                most
                if self.is_exhaustive or len(self._growing) != 1
                else min(most, sum(math.ceil(math.log2(count + 1)) for count in counts))
            )
        return total

    # -------------------------------------------------------------------------------------------- what a run may decide

    def _gain(self, cell: Cell, model: Array | None) -> tuple[float, int]:
        """Returns how many open questions a run is expected to answer, and how evenly its two outcomes divide them."""
        line = self._lines[self.line_of(cell)]
        expected, worst = 0.0, 0
        peak, spread = self._predicted(cell, model)
        for device, usable in enumerate(self.usable_bytes):
            share = 0.5 if peak is None else _below((math.log(usable) - peak) / spread)
            open_cells = [other for other in line if other not in self.outcomes and self.decided(other, device) is None]
            smaller = sum(self._is_below(other, cell) for other in open_cells)
            larger = sum(self._is_below(cell, other) for other in open_cells)
            expected += share * smaller + (1 - share) * larger
            worst += min(smaller, larger)
        return round(expected, 6), worst

    def _is_below(self, one: Cell, other: Cell) -> bool:
        """Returns whether a configuration has no larger value than another of the same line on any growing axis."""
        return all(one[place] <= other[place] for place in self._growing)

    # ------------------------------------------------------------------------------------------------------- prediction

    def _predicted(self, cell: Cell, model: Array | None) -> tuple[float | None, float]:
        """Returns the predicted logarithm of the peak, or None before the first run, and its standard deviation."""
        line = self._lines[self.line_of(cell)]
        known = [(other, self.outcomes[other].peak_bytes) for other in line if other in self.outcomes]
        runs = [(other, math.log(peak)) for other, peak in known if peak]
        if (between := self._between(cell, runs)) is not None:
            return between, _NEAR
        spread = max(0.5 / math.sqrt(1 + len(self.outcomes)), 2 * _NEAR)
        if model is None:
            return None, spread
        guess = float(self._features[cell] @ model)
        if not runs:
            return guess, spread
        nearest, peak = min(runs, key=lambda run: sum(abs(a - b) for a, b in zip(run[0], cell, strict=True)))
        return peak + guess - float(self._features[nearest] @ model), spread / 2

    def _between(self, cell: Cell, runs: Sequence[tuple[Cell, float]]) -> float | None:
        """Returns the peak on a straight line through two runs that differ from a configuration on one growing axis."""
        for place in self._growing:
            values = self.grid.axes[place].values
            same = sorted(
                (float(number(values[other[place]])), math.exp(peak))
                for other, peak in runs
                if all(a == b for at, (a, b) in enumerate(zip(other, cell, strict=True)) if at != place)
            )
            if len(same) < 2:
                continue
            here = float(number(values[cell[place]]))
            (x0, y0), (x1, y1) = sorted(sorted(same, key=lambda run: abs(run[0] - here))[:2])
            guess = y0 + (y1 - y0) * (here - x0) / (x1 - x0)
            if guess > 0:
                return math.log(guess)
        return None

    def _model(self) -> Array | None:
        """Returns weights of the features for the logarithm of the peak, or None before the first run."""
        known = [(self._features[cell], outcome.peak_bytes) for cell, outcome in self.outcomes.items()]
        runs = [(features, math.log(peak)) for features, peak in known if peak]
        if not runs:
            return None
        x, y = np.array([features for features, _ in runs]), np.array([peak for _, peak in runs])
        trust = np.diag([1e-9, *(_PRIOR for _ in self._slopes[1:])])
        weights: Array = self._slopes + np.linalg.solve(x.T @ x + trust, x.T @ (y - x @ self._slopes))
        return weights

    def _feature(self, cell: Cell) -> Array:
        """Returns the features of a configuration: 1, the logarithm of numbers, and one column for each word."""
        features = [1.0]
        for axis, at in zip(self.grid.axes, cell, strict=True):
            features += (
                [math.log(float(axis.values[at]))]
                if _is_positive(axis)
                else [float(place == at) for place in range(len(axis.values))]
            )
        return np.array(features)

    def _usual_slopes(self) -> Array:
        """Returns the weights of the features that are assumed before the first run."""
        slopes = [0.0]
        for axis in self.grid.axes:
            slopes += [_SLOPE if axis.is_growing else _OTHER_SLOPE] if _is_positive(axis) else [0.0] * len(axis.values)
        return np.array(slopes)


def _is_positive(axis: GridAxis) -> bool:
    """Returns whether all values of an axis are numbers above 0."""
    found = [number(value) for value in axis.values]
    return all(isinstance(value, int | float) and value > 0 for value in found)


def _below(z: float) -> float:
    """Returns the probability that a normal deviate is below ``z``."""
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def frontier(search: Search, device: int) -> Mapping[Cell, bool | None]:
    """Returns for each configuration whether it fits on a device; None: the command failed."""
    found = {cell: search.decided(cell, device) for cell in search.grid.cells}
    return {cell: None if known is None else known[0] for cell, known in found.items()}
