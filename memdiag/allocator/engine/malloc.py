"""One request: search, and where nothing fits the long way to the driver and back."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, new_block, record_trace, resize, split_tail
from memdiag.allocator.engine.driver import count_device_alloc, device_bytes, new_segment, take_device_bytes
from memdiag.allocator.engine.expandable import try_allocate_expandable_block

from memdiag.allocator.engine.memory import (  # isort: skip
    ADDRESS, ALIGNMENT, CALL, COUNT, EXPANDABLE, FREE, FREEABLE, FREE_BYTES, GC, HELD, HOLE, INDEX, IS_BROKEN, IS_CAPTURED, IS_LAZY,
    IS_LOGGED, IS_OPEN, IS_PRIVATE, IS_SMALL, KNOWN, LANE, LANES, LENDS_EXPANDABLE, LENDS_LAST, LIMIT, LOG_ACTION, LOG_CALL, LOG_OFF,
    LOG_POOL, LOG_SEG, LOG_SIZE, LOG_STREAM, LOG_TENSOR, MAX_SPLIT, NEXT, NONE, NO_SPLIT, NUM_LOGGED, NUM_POOLS, NUM_STAND_IN, NUM_STREAMS,
    OFF, OOMS, OUTSTANDING, POOL, POOLS, PREV, PRIVATE_IS_EXPANDABLE, RANGE, REJECT_ABOVE, RESERVED, RETRIES, REUSE_NEEDS_CAPTURE, ROUNDING,
    ROW, SEARCHES, SIZE, STANDS_IN, STATE, STREAM, SUCC, TIE, USERS, up,
)  # fmt: skip
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import (
    garbage_collect_cached_blocks,
    is_expandable,
    lane_of,
    release_available_cached_blocks,
    release_cached_blocks,
)
from memdiag.allocator.engine.streams import is_capturing, process_events
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import OOM, SEGMENT_ALLOC
from memdiag.trace.table import Array

REJECTED = -1
_SMALL = 1 << 20
_LARGE_ALIGNED = 2 << 20
_MOST_EVENTS = 512  # so many may wait before lazy reclaiming looks at them


@lean_part
def _size_with_unmapped(m: Array, block: int) -> int:
    """Size that a block could grow to in place."""
    following = m[block + NEXT]
    size: int = m[block + SIZE]
    return size + m[following + SIZE] if following != NONE and m[following + STATE] == HOLE else size


@lean_part
def get_free_block(r: Array, m: Array, lane: int, size: int) -> int:
    """Returns the best free block, still in its set; NONE: no block, or the best one is refused."""
    if r[GC] and r[LIMIT] >= 0 and lane < r[LANES] + r[NUM_STREAMS] * 2 * 16:
        r[SEARCHES] += 1  # the collector's clock: it stands still while there is nothing to collect
    block = lower_bound(m, lane, size)
    if block == lane:
        return NONE
    if r[EXPANDABLE]:
        # Of the blocks that follow, one with less room to grow is preferred; the first that has not less ends the search.
        following = m[block + SUCC]
        while following != lane and is_expandable(m, block) and _size_with_unmapped(m, following) < _size_with_unmapped(m, block):
            block, following = following, m[following + SUCC]
    else:
        while is_expandable(m, block):
            block = m[block + SUCC]
            if block == lane:
                return NONE
    found = m[block + SIZE]
    if (size < r[MAX_SPLIT] <= found) or (size >= r[MAX_SPLIT] and found >= size + r[ROUNDING]):
        return NONE
    return block


@lean_part
def alloc_block(r: Array, m: Array, log: Array, lane: int, size: int, segment_size: int) -> int:
    """Returns a new free block, in no set; NONE: over the limit or the device's memory; REJECTED: refused at once."""
    total = r[RESERVED] + segment_size  # the size of a segment counts even where an expandable one would grow by less
    if r[LIMIT] >= 0 and total > r[LIMIT]:
        return NONE
    if r[REJECT_ABOVE] >= 0 and total > r[REJECT_ABOVE]:
        return REJECTED
    if r[EXPANDABLE] and (r[PRIVATE_IS_EXPANDABLE] or not m[m[lane + POOL] + IS_PRIVATE]):
        block = try_allocate_expandable_block(r, m, log, lane, size)
    elif take_device_bytes(r, device_bytes(segment_size, 0)):
        count_device_alloc(r, segment_size)
        m[m[lane + POOL] + HELD] += segment_size
        block = new_block(r, m, new_segment(r, m, lane, segment_size, 0), 0, segment_size, FREE)
        record_trace(r, m, log, SEGMENT_ALLOC, block, segment_size, -1)
    else:
        block = NONE
    if block != NONE and m[m[lane + POOL] + IS_PRIVATE]:
        m[m[lane + POOL] + COUNT] += 1
    return block


@lean_part
def try_mempool_fallback(r: Array, m: Array, lane: int, size: int) -> int:
    """Returns a free block, still in its set, of a private pool that lends what it has to the default pool; NONE: none has one.

    The allocator opens a scope of each such pool for the search: one that is open already is an assertion. With expandable segments it
    opens them all the same, and finds nothing (from 2.10 on).
    """
    turn = 0
    while not m[m[lane + POOL] + IS_PRIVATE]:
        pool = NONE
        for index in range(1, r[NUM_POOLS]):
            row = r[POOLS] + index * ROW
            if m[row + STANDS_IN] > turn and (pool == NONE or m[row + STANDS_IN] < m[pool + STANDS_IN]):
                pool = row
        if pool == NONE:
            return NONE
        if not m[pool + KNOWN]:  # of versions that ask released pools as well: it is made anew, with nobody who uses it
            m[pool + KNOWN], m[pool + USERS], m[pool + COUNT], m[pool + FREEABLE] = 1, 0, 0, 1
        elif m[pool + IS_OPEN] or m[pool + USERS] == 0:
            r[IS_BROKEN] = 1
            return NONE
        if r[LENDS_EXPANDABLE] or not r[EXPANDABLE]:
            block = get_free_block(r, m, lane_of(r, m[pool + INDEX], m[lane + IS_SMALL], m[lane + STREAM]), size)
            if block != NONE:
                return block
        turn = m[pool + STANDS_IN]
    return NONE


@lean_part
def _alloc_after_miss(r: Array, m: Array, log: Array, lane: int, size: int, segment_size: int) -> int:
    """What follows a search in vain. The free blocks are not searched again, even where a release or a wait has made one that fits."""
    if r[GC] and r[LIMIT] >= 0:
        garbage_collect_cached_blocks(r, m, log)
    block = alloc_block(r, m, log, lane, size, segment_size)
    if block == NONE and r[NUM_STAND_IN] and not r[LENDS_LAST]:
        block = try_mempool_fallback(r, m, lane, size)
        if r[IS_BROKEN]:
            return NONE
    captures = m[m[lane + POOL] + IS_CAPTURED] != 0
    if block == NONE and release_available_cached_blocks(r, m, log, lane, size):
        block = alloc_block(r, m, log, lane, size, segment_size)
    if block == NONE and not (captures or is_capturing(r)):
        release_cached_blocks(r, m, log)
        if r[IS_BROKEN]:
            return NONE
        r[RETRIES] += 1
        block = alloc_block(r, m, log, lane, size, segment_size)
    if block == NONE and r[NUM_STAND_IN] and r[LENDS_LAST]:
        block = try_mempool_fallback(r, m, lane, size)
    return block


@lean_part
def malloc(r: Array, m: Array, log: Array, lane: int, size: int, segment_size: int, tensor: int) -> int:
    """Returns the block for a request of ``size`` bytes, rounded; NONE: out of memory."""
    if (not r[IS_LAZY] or r[OUTSTANDING] > _MOST_EVENTS) and not m[m[lane + POOL] + IS_CAPTURED]:
        process_events(r, m, log)
    if r[REUSE_NEEDS_CAPTURE] and is_capturing(r):
        r[IS_BROKEN] = 1
        return NONE
    block = get_free_block(r, m, lane, size)
    if block == NONE and r[IS_LAZY]:
        process_events(r, m, log)
        block = get_free_block(r, m, lane, size)
    is_found = block != NONE
    if not is_found:
        block = _alloc_after_miss(r, m, log, lane, size, segment_size)
        is_found = block > NONE and m[block + LANE] != lane  # of a pool that stands in
    if block <= NONE:
        if block == NONE:
            r[OOMS] += 1
            if r[IS_LOGGED]:
                at = r[NUM_LOGGED]
                r[NUM_LOGGED] = at + 1
                log[LOG_ACTION, at], log[LOG_CALL, at], log[LOG_SEG, at], log[LOG_OFF, at] = OOM, r[CALL], -1, max(r[FREE_BYTES], 0)
                log[LOG_SIZE, at], log[LOG_STREAM, at] = size, m[lane + STREAM]
                log[LOG_POOL, at], log[LOG_TENSOR, at] = m[m[lane + POOL] + INDEX], tensor
        return NONE
    fine = m[lane + IS_SMALL] or r[EXPANDABLE]
    if r[EXPANDABLE] and r[ALIGNMENT] > 1 and size >= _LARGE_ALIGNED:
        off = m[block + OFF]
        address = m[m[block + RANGE] + ADDRESS] + off
        skipped = up(address, r[ALIGNMENT]) - address
        if skipped > 0 and skipped + size <= m[block + SIZE]:
            if is_found:
                remove(m, block)
                is_found = False
            head = block
            block = split_tail(r, m, head, skipped)
            insert_into_blocks(r, m, head)
    spare = 0 if m[m[m[block + LANE] + POOL] + NO_SPLIT] else m[block + SIZE] - size
    if spare >= 512 if fine else (size < r[MAX_SPLIT] and spare > _SMALL):
        return split_block(r, m, block, size, spare, is_found)
    if is_found:
        remove(m, block)
    return block


@lean_part
def split_block(r: Array, m: Array, block: int, size: int, spare: int, is_found: bool) -> int:
    """Hands out the beginning of a block. In the allocator, and here, the block that is cut becomes the rest; what is handed out is new."""
    off, before = m[block + OFF], m[block + PREV]
    low = new_block(r, m, m[block + RANGE], off, size, FREE)
    m[low + PREV], m[low + NEXT] = before, block
    m[before + NEXT] = low
    m[block + PREV] = low
    if is_found:
        resize(r, m, block, off + size, spare, m[block + TIE])
    else:
        m[block + OFF], m[block + SIZE] = off + size, spare
        insert_into_blocks(r, m, block)
    return low
