"""Sizes in PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp), in bytes.

The functions are also compiled into Numba loops.
"""

from __future__ import annotations

from memdiag.units import MIB

MIN_BLOCK = 512  # kMinBlockSize
SMALL_LIMIT = MIB  # kSmallSize: rounded requests up to this go to the small pool
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT = 20 * MIB  # kLargeBuffer, large_segment_size_mb
OWN_SEGMENT = 10 * MIB  # kMinLargeAlloc: rounded requests of at least this size get a segment of their size
SEGMENT_GRAIN = 2 * MIB  # kRoundLarge: in units of this


def get_allocation_size(size: int, large_segment: int = LARGE_SEGMENT) -> int:
    """Returns the bytes of a new segment for a request of ``size`` bytes, rounded (get_allocation_size)."""
    if size <= SMALL_LIMIT:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return large_segment
    return (size + SEGMENT_GRAIN - 1) // SEGMENT_GRAIN * SEGMENT_GRAIN


def should_split(remaining: int, size: int, is_small: bool, is_expandable: bool, max_split_size: int) -> bool:
    """Returns whether a block is split for a request (should_split).

    Args:
        remaining: Bytes of the block beyond the request.
        size: Bytes of the request, rounded.
        is_small: The block is in the small pool.
        is_expandable: expandable_segments is on.
        max_split_size: max_split_size_mb in bytes.
    """
    if is_small or is_expandable:
        return remaining >= MIN_BLOCK
    return size < max_split_size and remaining > SMALL_LIMIT


def oversize_from(size: int, max_split_size: int, max_non_split_rounding: int) -> int:
    """Returns the size from which a free block may not serve a request of ``size`` bytes (get_free_block)."""
    return max_split_size if size < max_split_size else size + max_non_split_rounding
