"""Columns and names that grow while a file is read, within a memory budget derived from the file size.

A few bytes of a compressed or oddly written file can encode a row of numbers. So the retained bytes are counted, and
reading stops before memory is exhausted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.text import phrase
from memdiag.trace.table import Array
from memdiag.units import MIB

BLANK = -1  # a cell without a value

_ALLOWANCE = 256 * MIB
_RATIO = 12
_NAME = 150  # bytes of a text and its dict entry, besides its characters


class ByteLimit:
    """Memory budget of one file, in bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.left = _ALLOWANCE + _RATIO * path.stat().st_size

    def spend(self, amount: int) -> None:
        """Charges ``amount`` bytes.

        Raises:
            RefusedFile: The budget is exhausted.
        """
        self.left -= amount
        if self.left < 0:
            raise RefusedFile(
                phrase("errors.too-many-rows", path=str(self._path)),
                phrase("errors.too-many-rows.hint"),
            )


class Columns:
    """Growing int64 columns."""

    def __init__(self, names: Sequence[str], budget: ByteLimit) -> None:
        self._columns = {name: array("q") for name in names}
        self._arrays = tuple(self._columns.values())
        self._budget = budget
        self._cost = 8 * len(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def add(self, *values: int) -> None:
        """Adds a row, in the order of the names.

        Raises:
            RefusedFile: The budget is exhausted.
        """
        self._budget.spend(self._cost)
        for column, value in zip(self._arrays, values, strict=True):
            column.append(value)

    def arrays(self) -> dict[str, Array]:
        """Returns all columns."""
        return {name: np.array(values, np.int64) for name, values in self._columns.items()}


class Names:
    """Numbers texts in order of first occurrence."""

    def __init__(self, budget: ByteLimit) -> None:
        self._numbers: dict[str, int] = {}
        self._budget = budget

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, text: str) -> int:
        """Returns the number of a text.

        Raises:
            RefusedFile: The budget is exhausted.
        """
        known = self._numbers.get(text)
        if known is None:
            self._budget.spend(_NAME + len(text))
            known = self._numbers[text] = len(self._numbers)
        return known

    def find(self, text: str) -> int:
        """Returns the number of a text, or BLANK if it never occurred."""
        return self._numbers.get(text, BLANK)

    def list(self) -> list[str]:
        """Returns all texts, in the order of their numbers."""
        return list(self._numbers)


def take(columns: dict[str, Array], rows: Array) -> dict[str, Array]:
    """Returns the given rows (indices or a mask) of all columns."""
    return {name: values[rows] for name, values in columns.items()}
