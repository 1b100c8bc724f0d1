"""Giving memory back to the driver: all that is cached, what is oversize, or what was unused for longest."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import record_trace
from memdiag.allocator.engine.driver import count_device_free
from memdiag.allocator.engine.expandable import unmap_block

from memdiag.allocator.engine.memory import (  # isort: skip
    BAR, BORN, COUNT, FREEABLE, HELD, HOLES, IS_BROKEN, KNOWN, LANE, LANES, LANE_ROWS, MAX_SPLIT, NEXT, NONE, NUM_POOLS, NUM_STREAMS, PAGE,
    POOLS, PRED, PREV, RANGE, RESERVED, ROW, SEARCHES, SIZE, SPLIT_IS_LIMITED, SUCC, TAKES_EXPANDABLE, drop_row,
)  # fmt: skip
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.streams import synchronize_and_free_events
from memdiag.trace.compiled import lean_part
from memdiag.trace.schema import SEGMENT_FREE
from memdiag.trace.table import Array


@lean_part
def lane_of(r: Array, pool: int, small: int, stream: int) -> int:
    """Returns the lane of a pool (its number), half and stream."""
    row: int = r[LANES] + ((pool * 2 + small) * r[NUM_STREAMS] + stream) * (LANE_ROWS * ROW)
    return row


@lean_part
def is_unsplit(m: Array, block: int) -> bool:
    """Whether a block is a range of its own, not cut."""
    return m[block + PREV] == NONE and m[block + NEXT] == NONE


@lean_part
def is_expandable(m: Array, block: int) -> bool:
    """Whether a block lies in an expandable segment."""
    return m[m[block + RANGE] + PAGE] != 0


@lean_part
def release_block(r: Array, m: Array, log: Array, block: int) -> None:
    """Frees the range that a free block is. One of an expandable segment is none: that is an assertion of the allocator's."""
    if is_expandable(m, block):
        r[IS_BROKEN] = 1
        return
    if not is_unsplit(m, block):  # with pages of 1 GiB an oversize block can be the rest of a segment: the driver refuses it
        r[IS_BROKEN] = 1
        return
    remove(m, block)
    record_trace(r, m, log, SEGMENT_FREE, block, m[block + SIZE], -1)
    count_device_free(r, m, m[block + LANE], m[block + SIZE], m[m[block + RANGE] + PAGE])
    drop_row(r, m, block)


@lean_part
def release_blocks(r: Array, m: Array, log: Array, pool: int, small: int) -> None:
    """Gives back half a pool: whole segments first, then the pages of expandable ones, both in the order of the sets."""
    num_expandable = 0
    for stream in range(r[NUM_STREAMS]):
        lane = lane_of(r, pool, small, stream)
        block = m[lane + SUCC]
        while block != lane and not r[IS_BROKEN]:
            following = m[block + SUCC]
            if is_expandable(m, block):
                num_expandable += 1
            elif is_unsplit(m, block):
                release_block(r, m, log, block)
            block = following
    if num_expandable == 0:
        return
    for stream in range(r[NUM_STREAMS]):
        lane = lane_of(r, pool, small, stream)
        block = m[lane + SUCC]
        while block != lane and not r[IS_BROKEN]:
            following = m[block + SUCC]  # pieces that stay are smaller than the block: they are put before it
            if is_expandable(m, block):
                unmap_block(r, m, log, block)
            block = following


@lean_part
def release_private_pool(r: Array, m: Array, log: Array, index: int) -> None:
    """Gives back what a released private pool holds; without ranges it is gone."""
    pool = r[POOLS] + index * ROW
    release_blocks(r, m, log, index, 1)
    release_blocks(r, m, log, index, 0)
    if m[pool + COUNT] == 0 and not r[IS_BROKEN]:
        m[pool + FREEABLE] = 0
        m[pool + KNOWN] = 0
        if m[pool + HELD]:  # the count was wrong: the pool is deleted under its own blocks
            r[IS_BROKEN] = 1
            return
        for lane in range(lane_of(r, index, 0, 0), lane_of(r, index + 1, 0, 0), LANE_ROWS * ROW):
            hole = m[lane + HOLES + SUCC]
            while hole != lane + HOLES:  # ranges of which nothing is mapped are forgotten with the pool
                following = m[hole + SUCC]
                remove(m, hole)
                drop_row(r, m, hole)
                hole = following


@lean_part
def release_cached_blocks(r: Array, m: Array, log: Array) -> None:
    """Gives back all that can be: after waiting for all events, both halves of the default pool, then each released private pool."""
    synchronize_and_free_events(r, m, log, NONE)
    release_blocks(r, m, log, 0, 0)
    release_blocks(r, m, log, 0, 1)
    for index in range(1, r[NUM_POOLS]):
        if m[r[POOLS] + index * ROW + FREEABLE]:
            release_private_pool(r, m, log, index)


@lean_part
def release_available_cached_blocks(r: Array, m: Array, log: Array, lane: int, size: int) -> bool:
    """With a limit on splitting: gives back one segment that is large enough, else the largest ones until they are; whether it was."""
    if not r[SPLIT_IS_LIMITED]:
        return False
    want, got = max(size, r[MAX_SPLIT]), 0
    block = lower_bound(m, lane, want)
    if block != lane and (r[TAKES_EXPANDABLE] or not is_expandable(m, block)):
        release_block(r, m, log, block)
        return True
    block = m[lane + PRED]
    while block != lane and got < want and m[block + SIZE] >= r[MAX_SPLIT] and not r[IS_BROKEN]:
        following = m[block + PRED]
        if r[TAKES_EXPANDABLE] or not is_expandable(m, block):
            got += m[block + SIZE]
            release_block(r, m, log, block)
        block = following
    return got >= want


@lean_part
def garbage_collect_cached_blocks(r: Array, m: Array, log: Array) -> None:
    """Garbage collection: gives back whole segments of the large default pool that were passed over most often, until few enough are left.

    Age is how many searches of the pool a block has been free for. Each pass takes all that are at least as old as the average, even
    where fewer would do.
    """
    target, got = r[RESERVED] - r[BAR], 0
    if target <= 0:
        return
    ages, count = 0, 0
    for stream in range(r[NUM_STREAMS]):
        lane = lane_of(r, 0, 0, stream)
        block = m[lane + SUCC]
        while block != lane:
            if is_unsplit(m, block):
                ages += r[SEARCHES] - m[block + BORN]
                count += 1
            block = m[block + SUCC]
    freed = True
    while got < target and freed and count > 0:
        average, freed = ages / count, False
        for stream in range(r[NUM_STREAMS]):
            lane = lane_of(r, 0, 0, stream)
            block = m[lane + SUCC]
            while block != lane:
                following = m[block + SUCC]
                age = r[SEARCHES] - m[block + BORN]
                if is_unsplit(m, block) and (r[TAKES_EXPANDABLE] or not is_expandable(m, block)) and age >= average:
                    freed, got, ages, count = True, got + m[block + SIZE], ages - age, count - 1
                    release_block(r, m, log, block)
                block = following
