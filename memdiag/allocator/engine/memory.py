"""The machine's memory: one flat array of 64-bit integers, cut into rows, and the names of what stands where.

Everything that the machine knows lies in two arrays, so that compiled functions pass little and the whole state can be kept, copied and
made larger between two calls. ``r`` holds registers: settings and counters. ``m`` holds rows of ``ROW`` numbers: blocks, ranges from the
driver, the ordered sets of free blocks, streams, pools. A row is known by the position of its first number, and ``m[row + SIZE]`` is one of
them; 0 is no row: what stands there looks like a block in use, so that nothing merges with it.
"""

from __future__ import annotations

from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

ROW = 16
NONE = 0

# Of a block. The first eight are what the ordered sets need, in one cache line.
KEY, TIE, LEFT, RIGHT, PARENT, PRIORITY, SUCC, PRED, PREV, NEXT, SIZE, OFF, RANGE, LANE, STATE, BORN = range(16)
# A block in use is in no set: the same numbers say whose it is.
TENSOR, REQUESTED, USES, EVENTS = LEFT, RIGHT, PARENT, KEY
# States. Idle ones (HOLE: address space without memory behind it) come first; neighbours of the same idle state are one block.
HOLE, FREE, LIVE, PENDING, A_RANGE, GONE = range(6)

# Of a range from the driver. PAGE is 0 for what cudaMalloc gave. PLACE orders ties, ADDRESS is where it lies.
NUMBER, PAGE, PLACE, ADDRESS, LENGTH = range(5)  # and LANE, STATE as of a block
# Of a lane: the free blocks of one half (small or large) of a pool on one stream. The row after it is the set of its holes.
# GIVEN_AT: as far as addresses that the driver gave are used up for it.
POOL, STREAM, IS_SMALL, GIVEN_AT = KEY, TIE, PARENT, SIZE  # and LEFT, SUCC, PRED as the head of a set
HOLES = ROW
LANE_ROWS = 2
# Of a pool. COUNT: how many ranges it is thought to have; HELD: bytes that it has. TURN: 0, or its place among the pools that stand in for
# the default pool; STANDS_IN is the same while the pool is there. IS_CAPTURED: whoever asks for memory in it captures a graph.
USERS, COUNT, KNOWN, FREEABLE, IS_PRIVATE, INDEX, NO_SPLIT, STANDS_IN, HELD, IS_OPEN, TURN, IS_CAPTURED = range(12)
# Of a stream: events in order.
ISSUED, FINISHED, HEAD, TAIL = range(4)
# Of an event in a stream's queue, and of a stream that a block was used on.
SEQUENCE, BLOCK, FOLLOWING, USED_STREAM, CAPTURED = range(5)

# Registers: settings.
(
    EXPANDABLE, MAX_SPLIT, SPLIT_IS_LIMITED, ROUNDING, SMALL_PAGE, LARGE_PAGE, LIMIT, GC, BAR, REJECT_ABOVE, ALIGNMENT, OWN_STREAM_COUNTS,
    IS_LAZY, MOST_RESERVED, TIES_BY_BIRTH, SCOPE_IS_CAPTURE, CAPTURE_USES_COUNT, PRIVATE_IS_EXPANDABLE, LENDS_LAST, LENDS_EXPANDABLE,
    TAKES_EXPANDABLE, REUSE_NEEDS_CAPTURE, SCOPE_END_FREES,
    DONE, NUM_STREAMS, NUM_POOLS, LANES, POOLS, STREAMS, WAITING, GIVEN, NUM_GIVEN, GIVEN_BY_LANE, NUM_BEFORE,
    # Counters and the like.
    FREE_BYTES, DEVICE_BYTES, OTHERS, NUM_RANGES, NEXT_PLACE, NEXT_ADDRESS, SPARE, FRESH, NUM_ROWS, CAPACITY, SEED, BIRTHS, SEARCHES,
    RESERVED, ALLOCATED, ACTIVE, REQUESTED_BYTES, RETRIES, OOMS, DEVICE_ALLOCS, DEVICE_FREES, OUTSTANDING, NUM_SCOPES, DEFERRED, IS_BROKEN,
    IS_LOGGED, NUM_LOGGED, LOG_CAPACITY, CALL, AT, UNTIL, NUM_STAND_IN, NUM_REGISTERS,
) = range(67)  # fmt: skip

# When streams are through (register DONE).
BY_NEXT_CALL, BY_HAND, AS_RECORDED = range(3)

# Columns of the log.
(LOG_ACTION, LOG_CALL, LOG_SEG, LOG_OFF, LOG_SIZE, LOG_STREAM, LOG_POOL, LOG_TENSOR) = range(8)
LOG_COLUMNS = ("action", "call", "seg", "off", "size", "stream", "pool", "tensor")

UNLIMITED = 1 << 62


@lean_part
def new_row(r: Array, m: Array) -> int:
    """Returns a row that nothing uses: one given back if there is any, so that the memory in use stays small and close together."""
    r[NUM_ROWS] += 1
    row = r[SPARE]
    if row != NONE:
        r[SPARE] = m[row + NEXT]
        return row
    row = r[FRESH]
    r[FRESH] = row + ROW
    r[SEED] = (r[SEED] * 1103515245 + 12345) & 0x7FFFFFFF
    m[row + PRIORITY] = r[SEED]
    return row


@lean_part
def drop_row(r: Array, m: Array, row: int) -> None:
    """Gives a row back."""
    r[NUM_ROWS] -= 1
    m[row + STATE] = GONE
    m[row + NEXT] = r[SPARE]
    r[SPARE] = row


@lean_part
def up(size: int, unit: int) -> int:
    """Rounds up to a multiple."""
    return (size + unit - 1) // unit * unit
