"""Values as the types of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from memdiag.text import text_of

_LARGEST = 1 << 1000
DEEPEST = 20  # settings come from a file, which may nest them without limit


def as_json(value: Any, depth: int = 0) -> Any:
    """Returns ``value`` in JSON types: numpy numbers as numbers, NaN as null, text as valid Unicode."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Integral):
        return int(value) if abs(int(value)) < _LARGEST else text_of(int(value))
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            return {as_json(text_of(key)): as_json(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [as_json(item, depth + 1) for item in value]
    return as_json(text_of(value))
