"""Columns that grow while a file is read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from memdiag.trace.table import Array

BLANK = -1  # a cell without a value


class Columns:
    """Growing int64 columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._columns = {name: array("q") for name in names}

    def add(self, *values: int) -> None:
        """Adds a row, in the order of the names."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def arrays(self) -> dict[str, Array]:
        """Returns all columns."""
        return {name: np.array(values, np.int64) for name, values in self._columns.items()}


def take(columns: dict[str, Array], rows: Array) -> dict[str, Array]:
    """Returns the given rows (indices or a mask) of all columns."""
    return {name: values[rows] for name, values in columns.items()}
