"""The compiled replay: calls go in, in order, and each call's outcome comes out.

The order in which a request looks for memory is that of GMLake's malloc: one free block, a stitched one, stitching, new memory, and once
more after giving back what is cached.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import insert_into_blocks, record_trace, split_tail

from memdiag.allocator.engine.memory import (  # isort: skip
    ACTIVE, ALLOCATED, AT, CALL, DEVICE_ALLOCS, DEVICE_BYTES, DEVICE_FREES, FINISHED, FREE_BYTES, FRESH, IS_LOGGED, IS_SMALL, ISSUED,
    LANE, LIMIT, LIVE, LOG_ACTION, LOG_CALL, LOG_CAPACITY, LOG_OFF, LOG_POOL, LOG_SEG, LOG_SIZE, LOG_STREAM, LOG_TENSOR, MAX_SPLIT,
    NONE, NUM_LOGGED, NUM_ROWS, NUM_STREAMS, NUMBER, OFF, OOMS, OTHERS, RANGE, REQUESTED, REQUESTED_BYTES, RESERVED, RETRIES, ROW, SIZE,
    STATE, STREAM, STREAMS, SUCC, TENSOR, USES,
)  # fmt: skip
from memdiag.allocator.engine.memory import CAPACITY as ROOM
from memdiag.allocator.engine.ordered import lower_bound, remove
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.result import OK, OUT_OF_MEMORY, SKIPPED
from memdiag.allocator.stitch.driver import (
    LARGE_SEGMENT,
    MOST_SMALL,
    get_allocation_size,
    new_range,
    release_available_cached_blocks,
    release_cached_blocks,
)

from memdiag.allocator.stitch.pieces import (  # isort: skip
    ADDS_MISSING, CAPACITY, CHUNK, COLLECT_ABOVE, FRAG_LIMIT, LEVEL, NEXT_CHUNK, NEXT_PIECE, NUM_MAPPED, STITCHED_BYTES, reuse, set_used,
    share, stitch, take_apart_idle,
)  # fmt: skip
from memdiag.allocator.stitch.waiting import (
    L_ASKED,
    L_BYTES,
    L_PIECE,
    L_STITCHED,
    L_WAITS,
    drop_uses,
    free,
    free_block,
    process_events,
    record_stream,
    stop_waiting,
)

from memdiag.allocator.workload import (  # isort: skip
    ALLOC, COMPLETE, EMPTY_CACHE, EXTERNAL, FREE_COMPLETED, FREE_REQUESTED, RECORD_STREAM, SET_FRACTION, SET_TOTAL, SYNC,
)  # fmt: skip
from memdiag.allocator.workload import FREE as OP_FREE
from memdiag.trace import schema
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

# Rows of the result, a column a call. MAPS: chunks mapped so far; PIECES: of a new block.
(
    OUT_STATUS, OUT_SEG, OUT_OFF, OUT_BLOCK, OUT_RESERVED, OUT_ALLOCATED, OUT_ACTIVE, OUT_REQUESTED, OUT_RETRIES, OUT_OOMS,
    OUT_DEVICE_ALLOCS, OUT_DEVICE_FREES, OUT_HOW, OUT_PIECES, OUT_MAPS, NUM_OUT,
) = range(16)  # fmt: skip
# How a request got its memory: one free block, as it was or cut; a stitched block from before, or a new one; new memory, or new memory
# stitched to free blocks. NOTHING: it did not.
EXACT, CUT, REUSED, STITCHED, NEW, ADDED, NOTHING = range(7)
_SMALLEST_REST = 512
_NANO = 1_000_000_000


@lean_part
def alloc_block(r: Array, m: Array, log: Array, k: Array, lane: int, size: int) -> tuple[int, int, int]:
    """Returns how new memory was got, the stitched block (NONE: none) and a block in no set or the first piece; NONE: there is none."""
    wanted = get_allocation_size(size)
    if r[LIMIT] >= 0 and r[RESERVED] + wanted > r[LIMIT]:
        return NOTHING, NONE, NONE
    if k[ADDS_MISSING] and not m[lane + IS_SMALL] and size >= k[FRAG_LIMIT]:
        free, block = 0, m[lane + SUCC]
        while block != lane:
            free += m[block + SIZE]
            block = m[block + SUCC]
        if free >= size:
            return NOTHING, NONE, NONE
        wanted = get_allocation_size(size - free)
        if wanted < size:
            block = new_range(r, m, log, k, lane, wanted)
            if block == NONE:
                return NOTHING, NONE, NONE
            insert_into_blocks(r, m, block)
            stitched, piece = stitch(r, m, k, lane, size)
            return (NOTHING if stitched == NONE else ADDED), stitched, piece
    block = new_range(r, m, log, k, lane, wanted)
    return (NOTHING if block == NONE else NEW), NONE, block


@lean_part
def get_free_block(r: Array, m: Array, k: Array, used: Array, lane: int, size: int, most: int) -> tuple[int, int, int]:
    """Returns what is there already: the smallest free block that is large enough, else the smallest such stitched one."""
    block = lower_bound(m, lane, size)
    if block == lane:
        if m[lane + IS_SMALL]:
            return NOTHING, NONE, NONE
        stitched, piece = reuse(r, m, k, used, m[lane + STREAM], size, most)
        return (NOTHING if stitched == NONE else REUSED), stitched, piece
    there = m[block + SIZE]
    if size < r[MAX_SPLIT] <= there or (size >= r[MAX_SPLIT] and there >= size + LARGE_SEGMENT):
        return NOTHING, NONE, NONE
    remove(m, block)
    return (EXACT if there == size else CUT), NONE, block


@lean_part
def _malloc(r: Array, m: Array, log: Array, k: Array, used: Array, life: Array, lane: int, size: int, most: int,
          keep_log: bool) -> tuple[int, int, int]:  # fmt: skip
    """Returns how memory was found, the stitched block (NONE: none), and a block in no set, not yet cut, or the first piece."""
    may = not m[lane + IS_SMALL] and size >= k[FRAG_LIMIT]
    how, stitched, block = get_free_block(r, m, k, used, lane, size, most)
    if block == NONE and may and k[LEVEL] <= 0:
        how = STITCHED
        stitched, block = stitch(r, m, k, lane, size)
    if block == NONE:
        how, stitched, block = alloc_block(r, m, log, k, lane, size)
    if block == NONE and release_available_cached_blocks(r, m, log, k, lane, size):
        how, stitched, block = alloc_block(r, m, log, k, lane, size)
    if block == NONE and may and k[LEVEL] <= 1:
        how = STITCHED
        stitched, block = stitch(r, m, k, lane, size)
    if block == NONE:
        release_cached_blocks(r, m, log, k, used, life, keep_log)
        r[RETRIES] += 1
        how, stitched, block = alloc_block(r, m, log, k, lane, size)
    if block == NONE and may and k[LEVEL] <= 2:
        how = STITCHED
        stitched, block = stitch(r, m, k, lane, size)
    if block != NONE and stitched != NONE and k[STITCHED_BYTES] > k[COLLECT_ABOVE]:
        take_apart_idle(r, m, k, False)
    return (NOTHING if block == NONE else how), stitched, block


@lean_part
def _hand_out(r: Array, m: Array, log: Array, used: Array, life: Array, t: int, asked: int, size: int, stitched: int,
              block: int, keep_log: bool) -> int:  # fmt: skip
    """Gives a tensor its block, cut if that is due, or its pieces; returns how many it has."""
    small = m[m[block + LANE] + IS_SMALL]
    if stitched == NONE:
        m[block + NEXT_PIECE] = NONE
        rest = m[block + SIZE] - size
        if rest >= _SMALLEST_REST if small else (rest >= CHUNK and size < r[MAX_SPLIT]):
            insert_into_blocks(r, m, split_tail(r, m, block, size))
    num, total, piece = 0, 0, block
    while piece != NONE:
        num, total, piece = num + 1, total + m[piece + SIZE], m[piece + NEXT_PIECE]
    spare, left, piece = total - asked, num, block
    while piece != NONE:
        left -= 1
        mine = share(left, m[piece + SIZE], spare)
        spare -= mine
        following = m[piece + NEXT_PIECE]
        m[piece + STATE], m[piece + TENSOR], m[piece + REQUESTED], m[piece + USES] = LIVE, t, m[piece + SIZE] - mine, NONE
        if not small:
            set_used(m, used, piece, 1)
        if keep_log:
            record_trace(r, m, log, schema.ALLOC, piece, m[piece + REQUESTED], t)
        piece = following
    life[t, L_PIECE], life[t, L_STITCHED], life[t, L_BYTES], life[t, L_ASKED], life[t, L_WAITS] = block, stitched, total, asked, 0
    r[ALLOCATED] += total
    r[ACTIVE] += total
    r[REQUESTED_BYTES] += asked
    return num


@lean_part
def _note_oom(r: Array, log: Array, size: int, stream: int, tensor: int) -> None:
    at = r[NUM_LOGGED]
    r[NUM_LOGGED] = at + 1
    log[LOG_ACTION, at], log[LOG_CALL, at], log[LOG_SEG, at], log[LOG_OFF, at] = schema.OOM, r[CALL], -1, max(r[FREE_BYTES], 0)
    log[LOG_SIZE, at], log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = size, stream, 0, tensor


@lean
def run(r: Array, m: Array, log: Array, k: Array, used: Array, out: Array, life: Array, op: Array, tensor: Array, size: Array,
        stream: Array, rounded: Array, most: Array, largest: int) -> int:  # fmt: skip
    """Makes calls from ``r[AT]`` on until the last one, or until the memory of the machine, the log or ``used`` must be larger.

    Args:
        r, m, log: Registers, memory and log (columns x room), all int64.
        k: What is kept besides (``pieces``).
        used: Of each chunk of 2 MiB there ever was, whether a tensor has it (int8).
        out: Results (rows OUT_… x calls).
        life: Of each tensor, nothing yet (rows of NUM_LIFE zeros).
        op, tensor, size, stream: As of the workload.
        rounded, most: Of each allocation: bytes of its block; bytes of the largest stitched block that may serve it.
        largest: Chunks that the largest allocation needs.

    Returns:
        The number of calls made so far.
    """
    i = r[AT]
    keep_log = r[IS_LOGGED] != 0
    while i < len(op):
        # One call can cut each free block in three, and log each block three times; nothing else needs as much.
        if r[ROOM] - r[FRESH] < (2 * r[NUM_ROWS] + 64) * ROW or k[NEXT_CHUNK] + largest > len(used):
            break
        if keep_log and r[LOG_CAPACITY] - r[NUM_LOGGED] < 3 * r[NUM_ROWS] + 64:
            break
        r[CALL] = i
        code, t = op[i], tensor[i]
        status, seg, off, block_size, how, num = OK, -1, -1, -1, -1, 0
        if code == ALLOC:
            process_events(r, m, log, k, used, life, keep_log, False)
            if size[i] <= 0 or t < 0:
                status = SKIPPED
            else:
                lane = lane_of(r, 0, 1 if rounded[i] <= MOST_SMALL else 0, stream[i])
                how, stitched, block = _malloc(r, m, log, k, used, life, lane, rounded[i], most[i], keep_log)
                if block == NONE:
                    status = OUT_OF_MEMORY
                    r[OOMS] += 1
                    if keep_log:
                        _note_oom(r, log, rounded[i], stream[i], t)
                else:
                    num = _hand_out(r, m, log, used, life, t, size[i], rounded[i], stitched, block, keep_log)
                    seg, off, block_size = m[m[block + RANGE] + NUMBER], m[block + OFF], life[t, L_BYTES]
        elif code == OP_FREE or code == FREE_REQUESTED:
            if t < 0 or life[t, L_PIECE] == NONE or life[t, L_WAITS]:
                status = SKIPPED
            else:
                free(r, m, log, k, used, life, t, code == FREE_REQUESTED, keep_log)
        elif code == FREE_COMPLETED:
            if t < 0 or life[t, L_PIECE] == NONE or not life[t, L_WAITS]:
                status = SKIPPED
            else:
                drop_uses(r, m, life[t, L_PIECE])
                stop_waiting(k, life, t)
                free_block(r, m, log, k, used, life, t, keep_log)
        elif code == RECORD_STREAM:
            if t < 0 or life[t, L_PIECE] == NONE or life[t, L_WAITS]:
                status = SKIPPED
            else:
                record_stream(r, m, life[t, L_PIECE], stream[i])
        elif code == EMPTY_CACHE:
            release_cached_blocks(r, m, log, k, used, life, keep_log)
            take_apart_idle(r, m, k, False)
        elif code == COMPLETE or code == SYNC:
            for s in range(r[NUM_STREAMS]):
                if code == SYNC or stream[i] < 0 or s == stream[i]:
                    row = r[STREAMS] + s * ROW
                    m[row + FINISHED] = m[row + ISSUED]
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
        out[OUT_RESERVED, i], out[OUT_ALLOCATED, i] = r[RESERVED], r[ALLOCATED]
        out[OUT_ACTIVE, i], out[OUT_REQUESTED, i] = r[ACTIVE], r[REQUESTED_BYTES]
        out[OUT_RETRIES, i], out[OUT_OOMS, i] = r[RETRIES], r[OOMS]
        out[OUT_DEVICE_ALLOCS, i], out[OUT_DEVICE_FREES, i] = r[DEVICE_ALLOCS], r[DEVICE_FREES]
        out[OUT_HOW, i], out[OUT_PIECES, i], out[OUT_MAPS, i] = how, num, k[NUM_MAPPED]
        i += 1
    r[AT] = i
    return i
