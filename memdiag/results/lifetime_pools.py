"""The result of lifetime-segregated pools in a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool at one moment: name, segments, bytes reserved, bytes allocated, and bytes that outlive their window."""

    pool: str
    num_segments: int
    reserved_bytes: int
    used_bytes: int
    surviving_bytes: int


@dataclass(frozen=True, slots=True)
class Misfiled:
    """Tensors that were allocated in the wrong pool.

    Attributes:
        num, num_bytes: Tensors and bytes of their blocks, over the whole replay.
        peak_bytes: Bytes of those that were live at the reserved peak.
        cost_bytes: Their cost at that peak. For false long-lived tensors: idle bytes of segments that were reserved for
            them. For false short-lived tensors: free bytes in short-lived segments that a surviving tensor retains.
    """

    num: int
    num_bytes: int
    peak_bytes: int
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class LifetimePools:
    """Outcome of lifetime-segregated pools.

    Attributes:
        hooks: Unit that counted as a forward call: "layer" or "stack".
        bases: Basis of the marks for each of "setup", "forward", "step" and "optimizer".
        num_bytes: Bytes of all allocated blocks.
        thought_long_bytes: Bytes of tensors classified as long-lived.
        thought_long_wrongly: Classified as long-lived, but freed within the window in which they were allocated.
        thought_short_wrongly: Classified as short-lived within a window, but still live when it ended.
        pools: The four pools at the reserved peak.
    """

    hooks: str
    bases: Mapping[str, str]
    num_bytes: int
    thought_long_bytes: int
    thought_long_wrongly: Misfiled
    thought_short_wrongly: Misfiled
    pools: tuple[PoolState, ...]
