"""A table of frozen numpy columns, checked once against its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memdiag.trace.schema import Column

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]


class Table:
    """Columns of equal length, read-only, accessible by name: ``table.size`` or ``table["size"]``."""

    __slots__ = ("_columns", "_rows", "schema")

    def __init__(self, schema: Mapping[str, Column], columns: Mapping[str, Array]) -> None:
        """Checks, casts and freezes ``columns``.

        They must have the names of ``schema``, and one length; they are cast to the schema's dtypes.

        Raises:
            ValueError: A column is missing, unknown, or has another length.
        """
        if schema.keys() != columns.keys():
            raise ValueError(f"columns differ from the schema: {sorted(schema.keys() ^ columns.keys())}")
        frozen: dict[str, Array] = {}
        for name, column in schema.items():
            given = columns[name]
            # one value for all rows, which takes no memory
            repeated = given.strides == (0,) and given.dtype == column.dtype
            values = given if repeated else np.ascontiguousarray(given, dtype=column.dtype)
            if values is columns[name]:
                values = values.view()
            values.flags.writeable = False
            frozen[name] = values
        lengths = {len(values) for values in frozen.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: { {k: len(v) for k, v in frozen.items()} }")
        self.schema = schema
        self._columns = frozen
        self._rows = lengths.pop() if lengths else 0

    @classmethod
    def empty(cls, schema: Mapping[str, Column]) -> Table:
        """Returns a table without rows."""
        return cls(schema, {name: np.empty(0, column.dtype) for name, column in schema.items()})

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def __getattr__(self, name: str) -> Array:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return f"Table({self._rows} rows: {', '.join(self._columns)})"

    def replace(self, **columns: Array) -> Table:
        """Returns a table with some columns replaced."""
        return Table(self.schema, {**self._columns, **columns})

    def take(self, rows: Array) -> Table:
        """Returns the given rows (indices or a mask)."""
        return Table(self.schema, {name: values[rows] for name, values in self._columns.items()})

    def to_frame(self) -> pd.DataFrame:
        """Returns the table as a pandas DataFrame (copied; one column each, dtypes of the schema)."""
        import pandas as pd  # importing pandas takes 0.5 s: only on request

        return pd.DataFrame({name: values.copy() for name, values in self._columns.items()})


def index_type(count: int) -> type[np.signedinteger[Any]]:
    """Returns the smallest integer type that can number ``count`` rows, and -1."""
    return np.int32 if count < 1 << 31 else np.int64


def highest_in_parts(values: Array, parts: int) -> Array:
    """Returns the highest value in each of ``parts`` equal parts of a non-empty column.

    With more parts than values, some values repeat.
    """
    highest: Array = np.maximum.reduceat(values, np.arange(parts, dtype=np.int64) * len(values) // parts)
    return highest
