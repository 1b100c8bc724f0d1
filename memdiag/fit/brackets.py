"""Infers a number of pipeline stages from the outcomes with fewer and with more stages.

More stages divide the weights, but keep more micro-batches in flight, so no order is assumed on this axis. A middle
value is inferred only if all of these hold:

* The configurations with a smaller and with a larger value, and otherwise the same, have the same outcome.
* No two runs that differ on this axis only contradict each other: peaks only grow, or only shrink, along the axis.
* The middle value itself was run in two other places of the grid, as were the values around it, and the
  configuration lies between these places on every ordered axis. So the rule interpolates, and never extrapolates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement

from memdiag.fit.grid import Cell, Grid

SAME_WITHIN = 1.01  # ratio of two peaks: below, segments of the allocator explain the difference
Decided = tuple[bool, Cell]  # whether a configuration fits, and the run that decides it
Peaks = Mapping[Cell, int]  # reserved peak of each run, in bytes


@dataclass
class Brackets:
    """The middle values of the axes that may be inferred from both sides.

    Attributes:
        grid: The configurations.
        confirmed: For each axis (its place) and three of its values: places of the grid where all three were run.
    """

    grid: Grid
    confirmed: dict[tuple[int, Cell], list[Cell]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = [at for at, axis in enumerate(self.grid.axes) if axis.is_bracketed]
        self._cells = frozenset(self.grid.cells)

    def learn(self, peaks: Peaks) -> None:
        """Takes the reserved peaks of the runs so far, in bytes."""
        self.confirmed = {}
        for place in self.places:
            lines: dict[Cell, dict[int, int]] = {}
            for cell, peak in peaks.items():
                lines.setdefault(_moved(cell, place, 0), {})[cell[place]] = peak
            if any(_is_larger(line, 1) for line in lines.values()) and any(
                _is_larger(line, -1) for line in lines.values()
            ):
                continue  # the peaks grow somewhere and shrink elsewhere
            for where, line in lines.items():
                for values in combinations(sorted(line), 3):
                    self.confirmed.setdefault((place, values), []).append(where)

    def decided(
        self, cell: Cell, of: Callable[[Cell], Decided | None], ordered: Collection[int]
    ) -> tuple[bool, Cell, Cell] | None:
        """Returns whether a configuration fits, and the runs that decide both sides; None if they do not.

        Args:
            cell: The configuration.
            of: Returns what the runs decide on a configuration without this rule.
            ordered: Places of the axes that have an order.
        """
        for (place, values), confirmed in self.confirmed.items():
            if cell[place] != values[1] or not _is_within(cell, place, confirmed, ordered):
                continue
            lower, upper = (_moved(cell, place, value) for value in (values[0], values[2]))
            if lower in self._cells and upper in self._cells:
                one, other = of(lower), of(upper)
                if one is not None and other is not None and one[0] == other[0]:
                    return one[0], one[1], other[1]
        return None

    def is_middle(self, cell: Cell) -> bool:
        """Returns whether the grid has smaller and larger values of a bracketed axis for a configuration."""
        return any(
            any(_moved(cell, place, value) in self._cells for value in range(cell[place]))
            and any(
                _moved(cell, place, value) in self._cells
                for value in range(cell[place] + 1, len(self.grid.axes[place].values))
            )
            for place in self.places
        )

    def best_test(self, left: Sequence[Cell], ran: Collection[Cell], ordered: Collection[int]) -> Cell | None:
        """Returns the middle value whose run helps most to confirm the rule for others, or None.

        Args:
            left: Middle values that no run decides yet.
            ran: Configurations that were run.
            ordered: Places of the axes that have an order.
        """
        most, best = 0, None
        for place in self.places:
            tests = {
                cell: values
                for cell in left
                for values in combinations(range(len(self.grid.axes[place].values)), 3)
                if values[1] == cell[place] and all(_moved(cell, place, values[at]) in ran for at in (0, 2))
            }
            for one, other in combinations_with_replacement(tests, 2):
                if tests[one] != tests[other]:
                    continue
                where = [_moved(one, place, 0), _moved(other, place, 0)]
                where += self.confirmed.get((place, tests[one]), [])
                others = [cell for cell in left if cell[place] == one[place] and cell not in (one, other)]
                count = sum(_is_within(cell, place, where, ordered) for cell in others)
                if count > most:
                    most, best = count, one
        return best


def _moved(cell: Cell, place: int, value: int) -> Cell:
    return (*cell[:place], value, *cell[place + 1 :])


def _is_larger(line: Mapping[int, int], sign: int) -> bool:
    """Returns whether a larger value needs clearly more memory than a smaller one (``sign`` 1), or less (-1)."""
    return any(
        (line[b] > SAME_WITHIN * line[a]) if sign > 0 else (line[a] > SAME_WITHIN * line[b])
        for a, b in combinations(sorted(line), 2)
    )


def _is_within(cell: Cell, place: int, confirmed: Sequence[Cell], ordered: Collection[int]) -> bool:
    """Returns whether a configuration is between two of the places on ordered axes, and equals them on others."""
    return any(
        all(
            min(a, b) <= here <= max(a, b) if at in ordered else a == b == here
            for at, (here, a, b) in enumerate(zip(cell, one, other, strict=True))
            if at != place
        )
        for one, other in combinations(confirmed, 2)
    )
