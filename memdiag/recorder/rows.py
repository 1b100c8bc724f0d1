"""Tables of 64-bit numbers that grow by whole rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable


class NumberRows:
    """A table whose rows are appended by one call of a C function.

    No ctrl-C leaves an incomplete row, no signal handler sees one, and a profiler sees a single call.

    Args:
        names: Names of the columns.

    Attributes:
        values: The numbers, row by row.
        width: Number of columns.
        append: Appends a row: one number for each column.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self.values, self.width = array("q"), len(names)
        self.append: Callable[[tuple[int, ...]], None] = self.values.extend

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.values) // self.width

    def __getitem__(self, row: int) -> array[int]:
        """Returns a copy of a row, counted from the first."""
        return self.values[row * self.width : (row + 1) * self.width]

    def columns(self) -> dict[str, array[int]]:
        """Returns a copy of each column."""
        values = self.values[:]  # another thread may append
        return {name: values[number :: self.width] for number, name in enumerate(self._names)}

    def drop(self, num_rows: int) -> None:
        """Removes the first rows."""
        del self.values[: num_rows * self.width]

    def retain(self, rows: Iterable[int]) -> None:
        """Removes all rows except those with these numbers."""
        self.values[:] = array("q", [value for row in rows for value in self[row]])

    def pad(self, num_rows: int) -> None:
        """Appends rows of -1 until there are ``num_rows``."""
        missing = num_rows - len(self)
        if missing > 0:
            self.values.extend(array("q", [-1]) * (missing * self.width))
