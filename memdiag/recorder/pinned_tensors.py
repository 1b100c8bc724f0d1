"""The sizes of pinned tensors before PyTorch's host allocator rounds them up to powers of two.

The allocator's counters have rounded sizes only. Therefore this looks through the objects that Python's garbage
collector tracks, which include every tensor that the program can reach.
"""

from __future__ import annotations

import gc
import os
import re
from typing import Any

_LEAST = 1 << 20  # bytes: smaller tensors lose too little
_MIB = 1 << 20
_THRESHOLD = re.compile(r"pinned_max_round_threshold_mb\s*:\s*(\d+)")
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def pinned_tensors(torch: Any) -> tuple[int, int]:
    """Returns the bytes of the pinned tensors of at least 1 MiB, and the bytes of their blocks after rounding."""
    tensor, sizes = torch.Tensor, {}
    for found in gc.get_objects():
        if not issubclass(type(found), tensor):
            continue
        try:
            if found.device.type != "cpu":
                continue
            storage = found.untyped_storage()
            size = int(storage.nbytes())
            if size >= _LEAST and found.is_pinned():
                sizes[storage.data_ptr()] = size
        except Exception:  # noqa: BLE001, S112 - a subclass of Tensor may raise anything
            continue
    threshold = _threshold()
    return sum(sizes.values()), sum(_block(size, threshold) for size in sizes.values())


def _block(size: int, threshold: int | None) -> int:
    """Returns the size of a block (CachingHostAllocator.h: allocate)."""
    return size if threshold is not None and size > threshold else 1 << (size - 1).bit_length()


def _threshold() -> int | None:
    """Returns the bytes above which requests are not rounded, or None without such a setting."""
    for name in _VARIABLES:
        if (found := _THRESHOLD.search(os.environ.get(name, ""))) is not None:
            return int(found.group(1)) * _MIB
    return None
