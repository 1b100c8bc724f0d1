"""Chooses the configuration to run next, and infers outcomes of others from the runs so far.

Larger values of a growing axis are assumed to need at least as much memory, and later values of a shrinking one at
most as much. So if a run fits, each configuration that is no heavier on any ordered axis (and otherwise the same) fits
too; if it fails, each that is no lighter fails. Configurations that differ on ordered axes only are a family. In a
family, the limit is a staircase, which the runs follow. A prediction (``prediction``) estimates where it is, and the
next run is the configuration that is expected to decide most. A prediction never decides an outcome.

The runs also test the assumption. If a lighter configuration needed clearly more memory, the axes on which the
two differ lose their order, and the search runs the configurations that it had inferred from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memdiag.fit.brackets import Brackets
from memdiag.fit.grid import Cell, Grid
from memdiag.fit.prediction import PeakModel
from memdiag.trace.table import Array

REFUTED_FROM = 1.01  # ratio of two peaks against the order: below, segments of the allocator explain it


@dataclass(frozen=True)
class RunOutcome:
    """What a run showed: its reserved peak in bytes, and whether it fits on each device. An error has neither."""

    peak_bytes: int | None = None
    fits: tuple[bool, ...] = ()


class _Family:
    """Configurations that differ on ordered axes only, and which of them the runs decide.

    Attributes:
        cells: The configurations.
        below: Whether one configuration is no heavier than another on any ordered axis.
        fits: For each device and configuration: 1 fits, 0 fails, -1 undecided.
        by: For each device and configuration: the configuration whose run decides it, or -1.
    """

    def __init__(self, cells: list[Cell], weights: Array, num_devices: int) -> None:
        self.cells = cells
        self.below: Array = np.all(weights[:, None, :] <= weights[None, :, :], axis=2)
        self._far: Array = np.abs(weights[:, None, :] - weights[None, :, :]).sum(axis=2)
        self._moved: Array = (weights[:, None, :] != weights[None, :, :]).sum(axis=2)
        self.place = {cell: at for at, cell in enumerate(cells)}
        self._num_devices = num_devices
        self.clear()

    def clear(self) -> None:
        """Forgets all runs."""
        self.fits = np.full((self._num_devices, len(self.cells)), -1, dtype=np.int8)
        self.by = np.full((self._num_devices, len(self.cells)), -1, dtype=np.int64)
        self.ran = np.zeros(len(self.cells), dtype=bool)

    def add(self, cell: Cell, outcome: RunOutcome) -> None:
        """Adds a run, and what it decides: the nearest run that decides a configuration is named for it."""
        here = self.place[cell]
        self.ran[here] = True
        self.fits[:, here], self.by[:, here] = -1, -1
        for device, fits in enumerate(outcome.fits):
            decided = self.below[:, here] if fits else self.below[here]
            is_nearer = [
                at == here or (not self.ran[at] and self._is_nearer(at, here, int(self.by[device, at])))
                for at in np.flatnonzero(decided).tolist()
            ]
            chosen = np.flatnonzero(decided)[np.array(is_nearer, dtype=bool)]
            self.fits[device, chosen], self.by[device, chosen] = int(fits), here

    def _is_nearer(self, at: int, here: int, before: int) -> bool:
        def distance(by: int) -> tuple[int, int, int]:  # the last makes the choice independent of the order of the runs
            return int(self._moved[at, by]), int(self._far[at, by]), by

        return before < 0 or distance(here) < distance(before)


@dataclass
class FitSearch:
    """The state of a search on one kind of device.

    Attributes:
        grid: The configurations.
        usable_bytes: Memory that PyTorch can reserve on each device.
        is_exhaustive: Whether every configuration is run.
        outcomes: The runs so far.
        refuted: Places of axes that runs have shown not to be ordered.
    """

    grid: Grid
    usable_bytes: tuple[int, ...]
    is_exhaustive: bool = False
    outcomes: dict[Cell, RunOutcome] = field(default_factory=dict)
    refuted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._prediction, self._brackets, self._num_learnt = PeakModel(self.grid), Brackets(self.grid), 0
        self._seen: set[Cell] = set()
        self._make_families()

    def _make_families(self) -> None:
        self._ordered = [at for at, axis in enumerate(self.grid.axes) if axis.is_ordered and at not in self.refuted]
        groups: dict[Cell, list[Cell]] = {}
        for cell in self.grid.cells:
            groups.setdefault(self.family_of(cell), []).append(cell)
        signs = np.array([1 if self.grid.axes[at].is_growing else -1 for at in self._ordered], dtype=np.int64)
        self._families = {
            key: _Family(cells, np.array(cells)[:, self._ordered] * signs, len(self.usable_bytes))
            for key, cells in groups.items()
        }
        self._seen.clear()

    def line_of(self, cell: Cell) -> Cell:
        """Returns the part of a configuration that growing axes do not change."""
        return self._prediction.line_of(cell)

    def family_of(self, cell: Cell) -> Cell:
        """Returns the part of a configuration that ordered axes do not change."""
        return tuple(at for place, at in enumerate(cell) if place not in self._ordered)

    def decided(self, cell: Cell, device: int) -> tuple[bool, Cell] | None:
        """Returns whether a configuration fits on a device, and the run that decides it, or None if none does yet."""
        if (own := self.outcomes.get(cell)) is not None:
            return (own.fits[device], cell) if own.fits else None
        if self.is_exhaustive:
            return None
        family = self._up_to_date(cell)
        by = int(family.by[device, family.place[cell]])
        return None if by < 0 else (bool(family.fits[device, family.place[cell]]), family.cells[by])

    def bracketed(self, cell: Cell, device: int) -> tuple[bool, Cell, Cell] | None:
        """Returns whether a middle value that ``decided`` does not know fits, and the runs on both sides of it."""
        if self.is_exhaustive or not self._brackets.places or cell in self.outcomes:
            return None
        if self._num_learnt != len(self.outcomes):
            self._brackets.learn(self._peaks())
            self._num_learnt = len(self.outcomes)
        return self._brackets.decided(cell, lambda other: self.decided(other, device), self._ordered)

    def _is_open(self, cell: Cell, device: int) -> bool:
        return self.decided(cell, device) is None and self.bracketed(cell, device) is None

    def _peaks(self) -> dict[Cell, int]:
        return {cell: each.peak_bytes for cell, each in self.outcomes.items() if each.peak_bytes}

    def undecided(self) -> list[Cell]:
        """Returns the configurations that no run decides yet on some device, without those that were run."""
        devices = range(len(self.usable_bytes))
        return [
            cell
            for cell in self.grid.cells
            if cell not in self.outcomes and any(self._is_open(cell, device) for device in devices)
        ]

    def next(self, busy: Sequence[Cell] = ()) -> Cell | None:
        """Returns the configuration to run next, or None if there is no more to start.

        Args:
            busy: Configurations that are running now. Their families wait, since the outcome may decide the rest.
        """
        left = [cell for cell in self.undecided() if cell not in busy]
        if not self.is_exhaustive:
            families = {self.family_of(cell) for cell in busy}
            left = [cell for cell in left if self.family_of(cell) not in families]
            left = self._both_sides_first(left, bool(busy))
        if not left:
            return None
        self._prediction.learn(self._peaks())
        return max(left, key=self._gain)

    def _both_sides_first(self, left: list[Cell], is_busy: bool) -> list[Cell]:
        """Returns the candidates for the next run: middle values only after the values on both sides are decided."""
        ends = [cell for cell in left if not self._brackets.is_middle(cell)]
        if ends or not left:
            return ends
        if is_busy:
            return []  # the runs may decide these
        test = self._brackets.best_test(left, self.outcomes, self._ordered)
        return left if test is None else [test]

    def num_left_at_most(self) -> int:
        """Returns an upper bound of the runs that are still needed: in each line, halving the undecided part."""
        lines: dict[Cell, list[Cell]] = {}
        for cell in self.undecided():
            lines.setdefault(self.line_of(cell), []).append(cell)
        num_growing = sum(axis.is_growing for axis in self.grid.axes)
        total = 0
        for cells in lines.values():
            counts = [sum(self._is_open(cell, device) for cell in cells) for device in range(len(self.usable_bytes))]
            halved = sum(math.ceil(math.log2(count + 1)) for count in counts)
            total += max(counts) if self.is_exhaustive or num_growing != 1 else min(max(counts), halved)
        return total

    # -------------------------------------------------------------------------------------------- what the runs decide

    def _up_to_date(self, cell: Cell) -> _Family:
        """Returns the family of a configuration, with all runs so far."""
        if len(self._seen) != len(self.outcomes):
            while refuted := {at for ran in self._unseen() for at in self._against(ran)}:
                self.refuted |= refuted
                self._make_families()
            for ran in self._unseen():
                self._families[self.family_of(ran)].add(ran, self.outcomes[ran])
            self._seen.update(self.outcomes)
        return self._families[self.family_of(cell)]

    def _unseen(self) -> list[Cell]:
        return [cell for cell in self.outcomes if cell not in self._seen]

    def _against(self, cell: Cell) -> set[int]:
        """Returns the places of the axes on which a run and another contradict the order; shrinking ones first."""
        family, peak = self._families[self.family_of(cell)], self.outcomes[cell].peak_bytes
        here = family.place[cell]
        for other, outcome in self.outcomes.items():
            there, its = family.place.get(other), outcome.peak_bytes
            if there is None or not peak or not its:
                continue
            heavier_below = family.below[here, there] and peak > REFUTED_FROM * its
            if heavier_below or (family.below[there, here] and its > REFUTED_FROM * peak):
                moved = {at for at in self._ordered if cell[at] != other[at]}
                return {at for at in moved if self.grid.axes[at].is_shrinking} or moved
        return set()

    # -------------------------------------------------------------------------------------------- what a run may decide

    def _gain(self, cell: Cell) -> tuple[float, int]:
        """Returns how many open questions a run is expected to answer, and how evenly its two outcomes divide them."""
        family = self._up_to_date(cell)
        here = family.place[cell]
        expected, worst = 0.0, 0
        peak, spread = self._prediction.of(cell)
        for device, usable in enumerate(self.usable_bytes):
            is_open = (family.by[device] < 0) & ~family.ran
            smaller = int((family.below[:, here] & is_open).sum())
            larger = int((family.below[here] & is_open).sum())
            # Without a prediction, the place in the family says how likely it fits: the heaviest hardly does.
            share = larger / max(smaller + larger, 1) if peak is None else _below((math.log(usable) - peak) / spread)
            expected += share * smaller + (1 - share) * larger
            worst += min(smaller, larger)
        return round(expected, 6), worst


def _below(z: float) -> float:
    """Returns the probability that a normal deviate is below ``z``."""
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def frontier(search: FitSearch, device: int) -> Mapping[Cell, bool | None]:
    """Returns for each configuration whether it fits on a device; None: the command failed."""
    found = {cell: search.decided(cell, device) or search.bracketed(cell, device) for cell in search.grid.cells}
    return {cell: None if known is None else known[0] for cell, known in found.items()}
