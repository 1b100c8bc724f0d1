"""The driver, compiled: new memory in chunks of 2 MiB, and what is given back, with the stitched blocks that lose a part by it."""

from __future__ import annotations

from memdiag.allocator.engine.blocks import new_block, record_trace
from memdiag.allocator.engine.driver import count_device_alloc, count_device_free, device_bytes, new_segment, take_device_bytes

from memdiag.allocator.engine.memory import (  # isort: skip
    DEVICE_FREES, FREE, IS_SMALL, LANE, MAX_SPLIT, NONE, NUM_STREAMS, PRED, RANGE, SIZE, SPLIT_IS_LIMITED, SUCC, drop_row,
)  # fmt: skip
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import is_unsplit, lane_of

from memdiag.allocator.stitch.pieces import (  # isort: skip
    CHUNK, FIRST_BLOCK, FIRST_CHUNK, IS_GONE, NEXT_CHUNK, NUM_CREATED, NUM_MAPPED, NUM_UNMAPPED, take_apart_idle,
)  # fmt: skip
from memdiag.allocator.stitch.waiting import process_events
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

MOST_SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
LARGE_FROM = 10 << 20


@lean_part
def get_allocation_size(size: int) -> int:
    """Returns the bytes that the driver is asked for."""
    if size <= MOST_SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_FROM else size


@lean_part
def release_block(r: Array, m: Array, log: Array, k: Array, block: int) -> None:
    """Frees the range that a free block is."""
    segment, lane = m[block + RANGE], m[block + LANE]
    remove(m, block)
    record_trace(r, m, log, schema.SEGMENT_FREE, block, m[block + SIZE], -1)
    count_device_free(r, m, lane, m[block + SIZE], 0)
    m[segment + IS_GONE] = 1
    if not m[lane + IS_SMALL]:
        k[NUM_UNMAPPED] += m[block + SIZE] // CHUNK
    drop_row(r, m, block)


@lean_part
def release_cached_blocks(r: Array, m: Array, log: Array, k: Array, used: Array, life: Array, keep_log: bool) -> None:
    """Gives back all ranges that are wholly free, after waiting for other streams."""
    process_events(r, m, log, k, used, life, keep_log, True)
    before = r[DEVICE_FREES]
    for small in range(2):
        for stream in range(r[NUM_STREAMS]):
            lane = lane_of(r, 0, small, stream)
            block = m[lane + SUCC]
            while block != lane:
                following = m[block + SUCC]
                if is_unsplit(m, block):
                    release_block(r, m, log, k, block)
                block = following
    if r[DEVICE_FREES] > before:
        take_apart_idle(r, m, k, True)


@lean_part
def release_available_cached_blocks(r: Array, m: Array, log: Array, k: Array, lane: int, size: int) -> bool:
    """With a limit on splitting: gives back one range that is large enough, else the largest ones until they are; whether it was."""
    if not r[SPLIT_IS_LIMITED]:
        return False
    want, got, before = max(size, r[MAX_SPLIT]), 0, r[DEVICE_FREES]
    block = lower_bound(m, lane, want)
    if block != lane:
        # A block of that size can be a part of a range here, since stitched blocks cut in everything; such a one cannot be given back.
        if is_unsplit(m, block):
            got = m[block + SIZE]
            release_block(r, m, log, k, block)
    else:
        block = m[lane + PRED]
        while block != lane and got < want and m[block + SIZE] >= r[MAX_SPLIT]:
            following = m[block + PRED]
            if is_unsplit(m, block):
                got += m[block + SIZE]
                release_block(r, m, log, k, block)
            block = following
    if r[DEVICE_FREES] > before:
        take_apart_idle(r, m, k, True)
    return got >= want


@lean_part
def new_range(r: Array, m: Array, log: Array, k: Array, lane: int, wanted: int) -> int:
    """Returns new memory as a free block in no set; NONE: there is none."""
    if not take_device_bytes(r, device_bytes(wanted, 0)):
        return NONE
    count_device_alloc(r, wanted)
    segment = new_segment(r, m, lane, wanted, 0)
    block = new_block(r, m, segment, 0, wanted, FREE)
    m[segment + FIRST_BLOCK], m[segment + IS_GONE], m[segment + FIRST_CHUNK] = block, 0, k[NEXT_CHUNK]
    if not m[lane + IS_SMALL]:
        k[NEXT_CHUNK] += wanted // CHUNK
        k[NUM_CREATED] += wanted // CHUNK
        k[NUM_MAPPED] += wanted // CHUNK
    record_trace(r, m, log, schema.SEGMENT_ALLOC, block, wanted, -1)
    return block
