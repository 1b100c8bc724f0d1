"""How an allocator turns a request into a block: the settings that determine sizes, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.sizes.cuda import LARGE_SEGMENT, MIN_BLOCK, OWN_SEGMENT, SEGMENT_GRAIN, SMALL_LIMIT, SMALL_SEGMENT
from memdiag.trace.table import Array


def allocation_sizes(rounded: Array, large_segment: int = LARGE_SEGMENT) -> Array:
    """Returns ``cuda.get_allocation_size`` of each rounded request (int64, bytes)."""
    own = -(-rounded // SEGMENT_GRAIN) * SEGMENT_GRAIN
    return np.where(rounded <= SMALL_LIMIT, SMALL_SEGMENT, np.where(rounded < OWN_SEGMENT, large_segment, own))


def are_split(remaining: Array, size: Array, is_fine: Array, max_split_size: int) -> Array:
    """Returns ``cuda.should_split`` for each block (bool).

    Args:
        is_fine: Whether each block is in the small pool, or in an expandable segment.
    """
    found: Array = np.where(is_fine, remaining >= MIN_BLOCK, (size < max_split_size) & (remaining > SMALL_LIMIT))
    return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Settings that determine block sizes.

    Source: CUDACachingAllocator.cpp (round_size, should_split), NPUCachingAllocator.cpp.

    Attributes:
        pad: Bytes added to every request before rounding: 0 on CUDA, 32 on NPU.
        divisions: roundup_power2_divisions, 16 entries; entry k covers [2^k, 2^(k+1)) MiB.
        max_split: max_split_size in bytes, or None if unlimited.
        large_segment: Bytes of a large segment or of a page of a large expandable segment.
        expandable: Whether expandable_segments is on; then every large block splits at 512 bytes.
        large_grain: Blocks of the large pool are multiples of this many bytes.
    """

    pad: int = 0
    divisions: tuple[int, ...] = (0,) * 16
    max_split: int | None = None
    large_segment: int = LARGE_SEGMENT
    expandable: bool = False
    large_grain: int = MIN_BLOCK

    def round_size(self, requests: Array) -> Array:
        """Returns the rounded sizes (int64, bytes) of ``requests`` (int64, bytes)."""
        padded = np.asarray(requests, np.int64) + self.pad
        rounded = np.maximum(-(-padded // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
        if self.large_grain > MIN_BLOCK:
            rounded = np.where(rounded > SMALL_LIMIT, -(-rounded // self.large_grain) * self.large_grain, rounded)
        if not any(d > 1 for d in self.divisions):
            return rounded
        # frexp gives the exponent exactly; a float64 holds every size up to 2^53.
        exponent = np.frexp(np.maximum(padded, 1).astype(np.float64))[1] - 1
        divisions = np.asarray(self.divisions, np.int64)[np.clip(exponent - 20, 0, 15)]
        power = np.int64(1) << exponent.astype(np.int64)
        step = np.maximum(power // np.maximum(divisions, 1), 1)
        divided = -(-padded // step) * step
        return np.where((divisions > 1) & (padded > MIN_BLOCK * divisions), divided, rounded)
