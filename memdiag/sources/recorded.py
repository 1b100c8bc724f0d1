"""Reads what memdiag's recorder adds to a snapshot under the key ``memdiag``; from a stranger it may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memdiag.trace.recorded import Recorded
from memdiag.trace.table import Array

FORMAT = 1
_MARKS = ("time_ns", "kind", "value", "device", "allocs", "frees")
_MODULES = ("time_ns", "name", "device", "allocs", "frees")
_TENSORS = ("device", "addr", "category", "name", "first", "last")
_MOST_NAME = 500
_MOST_CATEGORY = 8


def recorded_in(own: Mapping[str, Any]) -> Recorded | None:
    """Returns the marks in the part of a file that is memdiag's own; None where there are none, or none of this version.

    Raises:
        ValueError: They are damaged.
    """
    if own.get("format") != FORMAT or not isinstance(own.get("marks"), dict):
        return None
    names = own.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of its marks are damaged")
    marks, modules = _columns(own, "marks", _MARKS), _columns(own, "modules", _MODULES)
    tensors = _columns(own, "tensors", _TENSORS)
    for name in (modules["name"], tensors["name"]):
        if len(name) and (name.max() >= len(names) or name.min() < -1):
            raise ValueError("a mark refers to a name that is not there")
    category = tensors["category"]
    if len(category) and (category.max() > _MOST_CATEGORY or category.min() < 0):
        raise ValueError("a mark names an unknown category")
    if len(marks["value"]) and abs(marks["value"]).max() > 1 << 31:
        raise ValueError("a mark has an absurd value")
    return Recorded(tuple(name[:_MOST_NAME] for name in names), marks, modules, tensors, _counts(own.get("counts")))


def _columns(own: Mapping[str, Any], table: str, names: tuple[str, ...]) -> dict[str, Array]:
    given = own.get(table)
    if not isinstance(given, dict):
        raise ValueError(f"its table of {table} is missing")
    columns = {}
    for name in names:
        data = given.get(name)
        if not isinstance(data, bytes) or len(data) % 8:
            raise ValueError(f"column {name} of its {table} is damaged")
        columns[name] = np.frombuffer(data, "<i8").astype(np.int64)
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"the columns of its {table} are not of one length")
    return columns


def _counts(given: Any) -> dict[int, tuple[int, int]]:
    counts = {}
    for device, values in given.items() if isinstance(given, dict) else ():
        if isinstance(device, int) and isinstance(values, dict):
            allocs, frees = values.get("allocs"), values.get("frees")
            if isinstance(allocs, int) and isinstance(frees, int) and 0 <= allocs < 1 << 60 and 0 <= frees < 1 << 60:
                counts[device] = (allocs, frees)
    return counts
