"""Encodes integer columns as short JSON: divided by a common factor, and as differences if those are shorter.

The result is then compressed. Sizes are multiples of 512 and events ascend, so both together take a tenth of the space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memdiag.trace.table import Array

_INT32 = 1 << 31


def pack(columns: Mapping[str, Array | None]) -> dict[str, Any]:
    """Returns ``{"n": rows, name: column…}``; a column that is None (unknown) is omitted.

    A column is ``{"t": "i32" or "f64", "d": differences, "s": scale, "v": [integers]}``: values are ``v``, or its
    running sum if ``d``, times ``s``. They must be whole numbers below 2^53.
    """
    known = {name: np.asarray(values) for name, values in columns.items() if values is not None}
    lengths = {len(values) for values in known.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: { {name: len(values) for name, values in known.items()} }")
    return {
        "n": lengths.pop() if lengths else 0,
        **{name: _packed(values.astype(np.int64)) for name, values in known.items()},
    }


def _packed(values: Array) -> dict[str, Any]:
    wide = bool(len(values)) and int(np.abs(values).max()) >= _INT32
    scale = max(int(np.gcd.reduce(values)), 1) if len(values) else 1
    values = values // scale
    changes = np.diff(values, prepend=0)
    use_changes = _digits(changes) < _digits(values)
    return {
        "t": "f64" if wide else "i32",
        "d": use_changes,
        "s": scale,
        "v": (changes if use_changes else values).tolist(),
    }


def _digits(values: Array) -> int:
    """Returns the approximate number of characters of the values."""
    return int(np.log10(np.abs(values) + 1.0).sum() + np.count_nonzero(values < 0))
