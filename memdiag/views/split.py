"""Reserved memory beyond the bytes that live tensors requested, by cause, over a run (docs/fragmentation.md)."""

from __future__ import annotations

import numpy as np

from memdiag.trace.table import Array, Table

PARTS: tuple[str, ...] = ("rounding", "pending", "stranded", "foreign", "cache")
_DIFFERENCES = {"rounding": ("allocated", "requested"), "pending": ("active", "allocated")}


def split_over_time(usage: Table) -> dict[str, Array]:
    """Returns the bytes of each of PARTS after every event; -1 where unknown.

    Together they are reserved - requested.
    """
    return {name: _difference(usage, *_DIFFERENCES[name]) if name in _DIFFERENCES else usage[name] for name in PARTS}


def _difference(usage: Table, whole: str, part: str) -> Array:
    return np.where((usage[whole] >= 0) & (usage[part] >= 0), usage[whole] - usage[part], -1)
