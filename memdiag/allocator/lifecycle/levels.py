"""Where a request finds its memory, compiled: reuse under restrictions, new memory, reuse without them, giving back and trying again.

"Own" is the pool of the lifetime that was decided, "other" the one of the other lifetime. Restrictions on a free block of the first level:

a. not a block that is never cut for a request that is smaller than those, nor one 20 MiB larger than a request that is as large;
b. a large short-lived request outside of forward does not cut a block of 1.8 GB or k, unless it takes nearly all of it;
c. a large short-lived request in a forward window takes nothing from the long-lived;
d. a large long-lived request takes a whole segment of just the size that it would have obtained, or nothing;
e. a large long-lived request takes nothing from the short-lived.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import new_block, record_trace
from memdiag.allocator.engine.driver import count_device_alloc, new_segment, take_device_bytes
from memdiag.allocator.engine.expandable import try_allocate_expandable_block
from memdiag.allocator.engine.memory import (
    EXPANDABLE,
    FREE,
    FREE_BYTES,
    LENGTH,
    LIMIT,
    MAX_SPLIT,
    NONE,
    RANGE,
    RESERVED,
    RETRIES,
    SIZE,
    SUCC,
    UNLIMITED,
)  # fmt: skip
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import is_unsplit, lane_of, release_available_cached_blocks, release_cached_blocks
from memdiag.allocator.lifecycle import tables
from memdiag.allocator.lifecycle.pools import (
    ALR_MAX,
    DEFAULT,
    IN_FORWARD,
    LARGE,
    LARGE_SEGMENT,
    LONG,
    MOST_SMALL,
    OPTIMIZE,
    SMALL,
    USABLE,
    get_allocation_size,
)  # fmt: skip
from memdiag.trace.compiled import njit_part
from memdiag.trace.schema import SEGMENT_ALLOC
from memdiag.trace.table import Array

# Levels; of a request that nothing was found for, NOWHERE.
REUSE, NEW, ANY, LARGE_FOR_SMALL, AGAIN, NOWHERE = range(1, 7)

_VERY_LARGE = 1_800_000_000
_PREJUDGED = 200 << 20  # new memory is not even asked for when less than this would be left
_MUCH_LARGER = 1_395_864_371
_MOST_CANDIDATES = 3


@njit_part
def find(r: Array, m: Array, log: Array, k: Array, size: int, own: int, stream: int) -> tuple[int, int]:
    """Returns the level and a block for a request, in no set and not yet cut; block NONE: out of memory."""
    half = SMALL if size <= MOST_SMALL else LARGE
    other = LONG - own
    for lifetime in (own, other):
        block = _allowed(r, m, k, size, lifetime, own, half, stream)
        if block != NONE:
            remove(m, block)
            return REUSE, block

    lane, needed = lane_of(r, own, half, stream), get_allocation_size(size, own)
    block = alloc_block(r, m, log, k, lane, size, needed, False)
    if block == NONE and release_available_cached_blocks(r, m, log, lane, size):
        block = alloc_block(r, m, log, k, lane, size, needed, False)
    if block != NONE:
        return NEW, block

    for lifetime in (other, own):
        if half == LARGE and lifetime == LONG and lifetime == other and k[IN_FORWARD]:
            continue
        block = _any(r, m, lane_of(r, lifetime, half, stream), size)
        if block != NONE:
            return ANY, block
    if half == SMALL:
        for lifetime in (own, other):
            block = _any(r, m, lane_of(r, lifetime, LARGE, stream), size)
            if block != NONE:
                return LARGE_FOR_SMALL, block

    release_cached_blocks(r, m, log)
    r[RETRIES] += 1
    block = alloc_block(r, m, log, k, lane, size, needed, True)
    return (NOWHERE if block == NONE else AGAIN), block


@njit_part
def _breaks_a(r: Array, there: int, size: int) -> bool:
    """Whether restriction a forbids a free block of ``there`` bytes."""
    most = r[MAX_SPLIT]
    return size < most <= there or (size >= most and there >= size + LARGE_SEGMENT)


@njit_part
def _any(r: Array, m: Array, lane: int, size: int) -> int:
    """Returns the smallest free block of a lane for a request, taken out of its set, under restriction a alone; NONE: there is none."""
    block = lower_bound(m, lane, size)
    if block == lane or _breaks_a(r, m[block + SIZE], size):
        return NONE
    remove(m, block)
    return block


@njit_part
def _is_forbidden(r: Array, m: Array, k: Array, block: int, size: int, lifetime: int, own: int, half: int) -> bool:
    """Whether a restriction forbids a free block at the first level."""
    there = m[block + SIZE]
    if _breaks_a(r, there, size):
        return True
    if half == SMALL:
        return False
    if own == DEFAULT:
        if k[IN_FORWARD]:
            return lifetime == LONG
        return there >= _VERY_LARGE and there - size >= LARGE_SEGMENT
    return lifetime == DEFAULT or there != get_allocation_size(size, own) or not is_unsplit(m, block)


@njit_part
def _allowed(r: Array, m: Array, k: Array, size: int, lifetime: int, own: int, half: int, stream: int) -> int:
    """Returns the block of a pool that the first level takes; NONE: there is none.

    With ``open_memory_optimize`` up to three blocks are looked at, and only those whose segment is much larger than the request count: as
    the source has it, an ordinary block ends the search with nothing.
    """
    lane = lane_of(r, lifetime, half, stream)
    block = lower_bound(m, lane, size)
    if not k[OPTIMIZE]:
        return NONE if block == lane or _is_forbidden(r, m, k, block, size, lifetime, own, half) else block
    for _ in range(_MOST_CANDIDATES):
        if block == lane or _is_forbidden(r, m, k, block, size, lifetime, own, half):
            return NONE
        whole = m[m[block + RANGE] + LENGTH]
        if whole < size + _MUCH_LARGER:
            return NONE
        if not tables.expects(k, tables.STEP, whole):
            return block
        block = m[block + SUCC]
    return NONE


@njit_part
def alloc_block(r: Array, m: Array, log: Array, k: Array, lane: int, size: int, needed: int, retry: bool) -> int:
    """Returns a new free block, in no set; NONE: the device, or a limit, has none. Each real attempt looks at what the device has left."""
    total = r[RESERVED] + needed
    if not retry and k[USABLE] >= 0 and total + _PREJUDGED > k[USABLE]:
        return NONE
    if (r[LIMIT] >= 0 and total > r[LIMIT]) or total > k[ALR_MAX]:
        return NONE
    if r[EXPANDABLE]:
        block = try_allocate_expandable_block(r, m, log, lane, size)
    elif take_device_bytes(r, needed):
        count_device_alloc(r, needed)
        block = new_block(r, m, new_segment(r, m, lane, needed, 0), 0, needed, FREE)
        record_trace(r, m, log, SEGMENT_ALLOC, block, needed, -1)
    else:
        block = NONE
    if r[FREE_BYTES] < UNLIMITED // 2:  # a device without bounds has nothing that could be known
        k[USABLE] = r[RESERVED] + max(r[FREE_BYTES], 0)
    return block
