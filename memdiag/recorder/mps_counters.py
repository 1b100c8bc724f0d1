"""Counters of PyTorch's MPS allocator on Apple silicon, which keeps no history of its allocations.

Its memory is that of the machine, so the counters are part of the samples of host memory.
"""

from __future__ import annotations

from typing import Any

# Keys of a sample, and functions of torch.mps. The last one needs torch 2.5.
_COUNTERS = {
    "mps_used_bytes": "current_allocated_memory",
    "mps_driver_bytes": "driver_allocated_memory",
    "mps_limit_bytes": "recommended_max_memory",
}


def mps_memory(torch: Any) -> dict[str, int]:
    """Returns the counters in bytes; empty if this machine or this PyTorch has no MPS."""
    available = getattr(getattr(getattr(torch, "backends", None), "mps", None), "is_available", None)
    if available is None or not available():
        return {}
    found = {}
    for key, name in _COUNTERS.items():
        read = getattr(torch.mps, name, None)
        if read is not None:
            found[key] = int(read())
    return found
