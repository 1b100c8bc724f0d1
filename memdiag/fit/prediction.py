"""Predicts the peak of a configuration from the runs so far, to choose the next run. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from memdiag.fit.expressions import number
from memdiag.fit.grid import Cell, Grid
from memdiag.results.fit import GridAxis
from memdiag.trace.table import Array

# Assumed before any run: log(peak) grows by so much for each unit of log(value), on growing axes and on others (ranks
# that share the work); and how much runs count against that.
_SLOPE, _OTHER_SLOPE, _PRIOR = 0.7, -0.5, 0.05
_NEAR = 0.03  # standard deviation of log(peak) between two runs of the same line


class PeakModel:
    """A linear model of the logarithm of the peak, and straight lines between runs.

    Args:
        grid: The configurations.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._growing = [at for at, axis in enumerate(grid.axes) if axis.is_growing]
        self._slopes = self._usual_slopes()
        self._features = {cell: self._feature(cell) for cell in grid.cells}
        self._peaks: dict[Cell, float] = {}
        self._lines: dict[Cell, list[tuple[Cell, float]]] = {}
        self._model: Array | None = None

    def line_of(self, cell: Cell) -> Cell:
        """Returns the part of a configuration that growing axes do not change."""
        return tuple(at for place, at in enumerate(cell) if place not in self._growing)

    def learn(self, peaks: Mapping[Cell, int]) -> None:
        """Takes the reserved peaks of the runs so far, in bytes."""
        if len(peaks) == len(self._peaks):
            return
        self._peaks = {cell: math.log(peak) for cell, peak in peaks.items()}
        self._lines = {}
        for cell, peak in self._peaks.items():
            self._lines.setdefault(self.line_of(cell), []).append((cell, peak))
        x = np.array([self._features[cell] for cell in self._peaks])
        y = np.array(list(self._peaks.values()))
        trust = np.diag([1e-9, *(_PRIOR for _ in self._slopes[1:])])
        self._model = self._slopes + np.linalg.solve(x.T @ x + trust, x.T @ (y - x @ self._slopes))

    def of(self, cell: Cell) -> tuple[float | None, float]:
        """Returns the predicted logarithm of the peak, or None before the first run, and its standard deviation."""
        runs = self._lines.get(self.line_of(cell), [])
        if (between := self._between(cell, runs)) is not None:
            return between, _NEAR
        spread = max(0.5 / math.sqrt(1 + len(self._peaks)), 2 * _NEAR)
        if self._model is None:
            return None, spread
        guess = float(self._features[cell] @ self._model)
        if not runs:
            return guess, spread
        nearest, peak = min(runs, key=lambda run: sum(abs(a - b) for a, b in zip(run[0], cell, strict=True)))
        return peak + guess - float(self._features[nearest] @ self._model), spread / 2

    def _between(self, cell: Cell, runs: Sequence[tuple[Cell, float]]) -> float | None:
        """Returns the peak on a straight line through two runs that differ from a configuration on one growing axis."""
        for place in self._growing:
            values = self._grid.axes[place].values
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

    def _feature(self, cell: Cell) -> Array:
        """Returns the features of a configuration: 1, the logarithm of numbers, and one column for each word."""
        features = [1.0]
        for axis, at in zip(self._grid.axes, cell, strict=True):
            features += (
                [math.log(float(axis.values[at]))]
                if _is_positive(axis)
                else [float(place == at) for place in range(len(axis.values))]
            )
        return np.array(features)

    def _usual_slopes(self) -> Array:
        """Returns the weights of the features that are assumed before the first run."""
        slopes = [0.0]
        for axis in self._grid.axes:
            slopes += [_SLOPE if axis.is_growing else _OTHER_SLOPE] if _is_positive(axis) else [0.0] * len(axis.values)
        return np.array(slopes)


def _is_positive(axis: GridAxis) -> bool:
    """Returns whether all values of an axis are numbers above 0."""
    found = [number(value) for value in axis.values]
    return all(isinstance(value, int | float) and value > 0 for value in found)
