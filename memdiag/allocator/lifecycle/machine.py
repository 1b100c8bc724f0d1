"""The compiled replay: calls and marks go in, in order, and each call's outcome comes out.

Lifetimes are decided by ``tables`` from what earlier windows have shown, or told from outside; ``levels`` finds the memory.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, record_trace, split_tail, try_merge_blocks
from memdiag.allocator.engine.memory import (
    ALLOCATED,
    AT,
    CALL,
    DEVICE_ALLOCS,
    DEVICE_BYTES,
    DEVICE_FREES,
    EXPANDABLE,
    FREE_BYTES,
    FRESH,
    LANE,
    LIMIT,
    LIVE,
    LOG_ACTION,
    LOG_CALL,
    LOG_CAPACITY,
    LOG_OFF,
    LOG_POOL,
    LOG_SEG,
    LOG_SIZE,
    LOG_STREAM,
    LOG_TENSOR,
    MAX_SPLIT,
    NONE,
    NUM_LOGGED,
    NUM_ROWS,
    NUMBER,
    OFF,
    OOMS,
    OTHERS,
    RANGE,
    REQUESTED,
    REQUESTED_BYTES,
    RESERVED,
    RETRIES,
    ROW,
    SIZE,
    STATE,
    TENSOR,
    USES,
)  # fmt: skip
from memdiag.allocator.engine.memory import CAPACITY as ROOM
from memdiag.allocator.engine.memory import FREE as IS_FREE
from memdiag.allocator.engine.memory import IS_SMALL as LANE_IS_SMALL
from memdiag.allocator.engine.release import release_cached_blocks
from memdiag.allocator.lifecycle import levels, tables
from memdiag.allocator.lifecycle.marks import (
    FORWARD_BEGIN,
    FORWARD_END,
    PRECISE_BEGIN,
    PRECISE_END,
    RELEASE,
    STEP_BEGIN,
    STEP_END,
)  # fmt: skip
from memdiag.allocator.lifecycle.pools import (
    CAPACITY,
    DEFAULT,
    FORWARD_STARTS,
    IN_FORWARD,
    IN_STEP,
    IS_PRECISE,
    LONG,
    NEXT_MARK,
    THRESHOLD,
)  # fmt: skip
from memdiag.allocator.lifecycle.tables import FORWARD, FOUND, NEVER, NOTHING_YET, START, STEP, TIK, UNTIL, WINDOW
from memdiag.allocator.result import OK, OUT_OF_MEMORY, SKIPPED
from memdiag.allocator.workload import ALLOC, EMPTY_CACHE, EXTERNAL, FREE, FREE_REQUESTED, SET_FRACTION, SET_TOTAL
from memdiag.trace import schema
from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array

# Rows of the result, a column a call.
(
    OUT_STATUS, OUT_SEG, OUT_OFF, OUT_BLOCK, OUT_RESERVED, OUT_ALLOCATED, OUT_REQUESTED, OUT_RETRIES, OUT_OOMS, OUT_DEVICE_ALLOCS,
    OUT_DEVICE_FREES, OUT_LONG, OUT_LEVEL, NUM_OUT,
) = range(14)  # fmt: skip
# Columns of ``life``, a row a tensor: its block (NONE: it has none), its entries in the tables, and the windows these were made in.
L_BLOCK, L_FORWARD, L_FORWARD_WINDOW, L_STEP, L_STEP_WINDOW, NUM_LIFE = range(6)
NO_ENTRY = -1
_SMALLEST_REST, _LARGEST_WASTE = 512, 1 << 20
_NANO = 1_000_000_000


@njit_part
def _note_oom(r: Array, log: Array, size: int, stream: int, lifetime: int, tensor: int) -> None:
    at = r[NUM_LOGGED]
    r[NUM_LOGGED] = at + 1
    log[LOG_ACTION, at], log[LOG_CALL, at], log[LOG_SEG, at], log[LOG_OFF, at] = schema.OOM, r[CALL], -1, max(r[FREE_BYTES], 0)
    log[LOG_SIZE, at], log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = size, stream, lifetime, tensor


@njit_part
def _mark(r: Array, m: Array, log: Array, k: Array, kind: int) -> None:
    """Does what a hook does."""
    if kind == PRECISE_BEGIN or kind == PRECISE_END:
        k[IS_PRECISE] = kind == PRECISE_BEGIN
    elif kind == FORWARD_BEGIN:
        if not k[IS_PRECISE]:
            if k[FORWARD_STARTS] > 0:
                k[IN_FORWARD] = 1
            k[FORWARD_STARTS] += 1
        k[FORWARD + TIK] = 1
    elif kind == FORWARD_END:
        k[IN_FORWARD] = 0
        tables.end(k, FORWARD)
    elif kind == STEP_BEGIN:
        k[IN_STEP] = 1
        k[STEP + TIK] = 1
    elif kind == STEP_END:
        k[IN_STEP] = 0
        tables.end(k, STEP)
    elif kind == RELEASE:
        release_cached_blocks(r, m, log)


@njit_part
def _is_long(k: Array, rounded: int, size_number: int, rounded_number: int) -> bool:
    """Decides how long a tensor will live."""
    is_long = False
    k[STEP + START], k[STEP + UNTIL] = 0, 0
    if k[IS_PRECISE]:
        is_long = True
    elif k[IN_FORWARD]:
        found = tables.look_up(k, FORWARD, size_number, True)
        is_long = found == NOTHING_YET or (found == FOUND and k[FORWARD + UNTIL] == NEVER)
    if k[IN_STEP] and not k[IS_PRECISE] and tables.look_up(k, STEP, rounded_number, False) == FOUND:
        is_long = is_long or k[STEP + UNTIL] == NEVER
    return is_long and rounded > k[THRESHOLD]


@njit
def run(r: Array, m: Array, log: Array, k: Array, out: Array, life: Array, op: Array, tensor: Array, size: Array, stream: Array,
        rounded: Array, size_number: Array, rounded_number: Array, told: Array, mark_at: Array, mark_kind: Array,
        keep_log: bool) -> int:  # fmt: skip
    """Makes calls from ``r[AT]`` on until the last one, or until the memory of the machine must be larger.

    Args:
        r, m, log: Registers, memory and log (columns x room), all int64. Segments are always logged.
        k: What the pools keep, and the tables (``tables.fresh``).
        out: Results (rows OUT_… x calls).
        life: Of each tensor, nothing yet (rows of NUM_LIFE zeros).
        op, tensor, size, stream: As of the workload.
        rounded, size_number, rounded_number: Of each allocation: bytes of its block, its requested and its rounded size as numbers of
            distinct sizes.
        told: Of each call, whether the tensor is long-lived (1, 0); empty: the tables predict it.
        mark_at, mark_kind: Before which call a mark stands, in order, and what it says.
        keep_log: Whether blocks are logged too.

    Returns:
        The number of calls made so far.
    """
    i = r[AT]
    while i < len(op):
        # A release can cut each free block in three and log each block twice; nothing else needs as much.
        if r[ROOM] - r[FRESH] < (2 * r[NUM_ROWS] + 64) * ROW or r[LOG_CAPACITY] - r[NUM_LOGGED] < 3 * r[NUM_ROWS] + 64:
            break
        r[CALL] = i
        if k[NEXT_MARK] < len(mark_at) and mark_at[k[NEXT_MARK]] <= i:
            _mark(r, m, log, k, mark_kind[k[NEXT_MARK]])
            k[NEXT_MARK] += 1
            continue
        code, t = op[i], tensor[i]
        status, seg, off, block_size, is_long, level = OK, -1, -1, -1, False, -1
        if code == ALLOC:
            if size[i] <= 0 or t < 0:
                status = SKIPPED
            else:
                if len(told):
                    is_long = told[i] == 1
                else:
                    is_long = _is_long(k, rounded[i], size_number[i], rounded_number[i])
                lifetime = LONG if is_long else DEFAULT
                level, block = levels.find(r, m, log, k, rounded[i], lifetime, stream[i])
                if block == NONE:
                    status = OUT_OF_MEMORY
                    r[OOMS] += 1
                    if keep_log:
                        _note_oom(r, log, rounded[i], stream[i], lifetime, t)
                else:
                    rest = m[block + SIZE] - rounded[i]
                    fine = m[m[block + LANE] + LANE_IS_SMALL] or r[EXPANDABLE]
                    if rest >= _SMALLEST_REST if fine else (rounded[i] < r[MAX_SPLIT] and rest > _LARGEST_WASTE):
                        insert_into_blocks(r, m, split_tail(r, m, block, rounded[i]))
                    m[block + STATE], m[block + TENSOR], m[block + REQUESTED], m[block + USES] = LIVE, t, size[i], NONE
                    seg, off, block_size = m[m[block + RANGE] + NUMBER], m[block + OFF], m[block + SIZE]
                    r[ALLOCATED] += block_size
                    r[REQUESTED_BYTES] += size[i]
                    if keep_log:
                        record_trace(r, m, log, schema.ALLOC, block, size[i], t)
                    life[t, L_BLOCK], life[t, L_FORWARD], life[t, L_STEP] = block, NO_ENTRY, NO_ENTRY
                    life[t, L_FORWARD_WINDOW], life[t, L_STEP_WINDOW] = k[FORWARD + WINDOW], k[STEP + WINDOW]
                    if k[IN_FORWARD]:
                        life[t, L_FORWARD] = tables.record(k, FORWARD, size_number[i], i)
                    if k[IN_STEP]:
                        life[t, L_STEP] = tables.record(k, STEP, rounded_number[i], i)
                    k[FORWARD + TIK] += 1
                    k[STEP + TIK] += 1
        elif code == FREE or code == FREE_REQUESTED:
            block = NONE if t < 0 else life[t, L_BLOCK]
            if block == NONE:
                status = SKIPPED
            else:
                life[t, L_BLOCK] = NONE
                if k[IN_STEP] and life[t, L_STEP] != NO_ENTRY:
                    tables.freed(k, STEP, life[t, L_STEP], life[t, L_STEP_WINDOW], i)
                if k[IN_FORWARD] and life[t, L_FORWARD] != NO_ENTRY:
                    tables.freed(k, FORWARD, life[t, L_FORWARD], life[t, L_FORWARD_WINDOW], i)
                r[ALLOCATED] -= m[block + SIZE]
                r[REQUESTED_BYTES] -= m[block + REQUESTED]
                if keep_log:
                    record_trace(r, m, log, schema.FREE_REQUESTED, block, m[block + REQUESTED], t)
                    record_trace(r, m, log, schema.FREE_COMPLETED, block, m[block + REQUESTED], t)
                m[block + STATE] = IS_FREE
                try_merge_blocks(r, m, block)
        elif code == EMPTY_CACHE:
            release_cached_blocks(r, m, log)
        elif code == SET_FRACTION:
            if k[CAPACITY] >= 0:
                r[LIMIT] = int(size[i] / _NANO * k[CAPACITY])
        elif code == EXTERNAL:
            r[FREE_BYTES] += r[OTHERS] - size[i]
            r[OTHERS] = size[i]
        elif code == SET_TOTAL:
            if k[CAPACITY] >= 0:
                r[FREE_BYTES] += size[i] - r[DEVICE_BYTES]
            r[DEVICE_BYTES], k[CAPACITY] = size[i], size[i]
        out[OUT_STATUS, i], out[OUT_SEG, i], out[OUT_OFF, i], out[OUT_BLOCK, i] = status, seg, off, block_size
        out[OUT_RESERVED, i], out[OUT_ALLOCATED, i], out[OUT_REQUESTED, i] = r[RESERVED], r[ALLOCATED], r[REQUESTED_BYTES]
        out[OUT_RETRIES, i], out[OUT_OOMS, i] = r[RETRIES], r[OOMS]
        out[OUT_DEVICE_ALLOCS, i], out[OUT_DEVICE_FREES, i] = r[DEVICE_ALLOCS], r[DEVICE_FREES]
        out[OUT_LONG, i], out[OUT_LEVEL, i] = is_long, level
        i += 1
    r[AT] = i
    return i
