"""MindSpeed's own allocator, plugged into torch_npu in place of the one of this folder, and observed from outside.

MindSpeed is not part of this repository: 1.0.RC1 and 1.0.RC2 have the sources, in the class
``MemoryFragmentationBuilder``. bench/lifecycle_real.py takes the compiled library (``--original``).

The allocator keeps no log. What is visible from outside is the address of each tensor, and the statistics after each
call.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

import numpy as np
import torch
from hooks import plug_in

COLUMNS = ("call", "address", "reserved", "allocated", "retries", "ooms", "segments_made", "segments_released")
_ARRAYS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_CURRENT, _ALLOCATED, _FREED = 0, 2, 3  # of all pools; places in an array of 3 kinds of pools with 4 numbers each


class _Stats(ctypes.Structure):
    """``DeviceStats`` of MindSpeed's common.h."""

    _fields_ = (
        *((name, ctypes.c_int64 * 12) for name in _ARRAYS),
        ("num_alloc_retries", ctypes.c_int64),
        ("num_ooms", ctypes.c_int64),
        ("rest", ctypes.c_int64 * 9),
    )


class Original:
    """The library: its hooks, and a log of what is visible after each call."""

    def __init__(self, library: str) -> None:
        loaded = plug_in(library)
        self._stats = loaded.memory_fragmentation_get_device_stats
        self._stats.restype, self._stats.argtypes = _Stats, [ctypes.c_int]
        spec = importlib.util.spec_from_file_location("MemoryFragmentation", library)
        self._hooks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._hooks)
        self._rows: list[tuple[int, ...]] = []

    def __getattr__(self, name: str) -> Any:
        """Returns a hook."""
        return getattr(self._hooks, name)

    def note(self, call: int, tensor: torch.Tensor | None) -> None:
        """Adds a row after a call."""
        stats = self._stats(0)
        address = 0 if tensor is None else tensor.data_ptr()
        segments = stats.segment
        sums = (stats.reserved_bytes[_CURRENT], stats.allocated_bytes[_CURRENT])
        counts = (stats.num_alloc_retries, stats.num_ooms, segments[_ALLOCATED], segments[_FREED])
        self._rows.append((call, address, *sums, *counts))

    def write_log(self, path: bytes) -> int:
        """Writes the rows, int64 in the order of COLUMNS."""
        np.array(self._rows, np.int64).reshape(-1, len(COLUMNS)).tofile(path.decode())
        return 0
