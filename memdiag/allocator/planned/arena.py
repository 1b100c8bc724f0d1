"""Arenas: the memory of a plan, one range from the driver for each stream, which is got when it is needed first. Compiled.

What lies in an arena is a block of the machine like any other, so that waiting for streams is the machine's own affair; but it has no
neighbours, and its lanes are those of a pool that nobody asks (``OWN_POOL``). When its free has ended it turns up in the set of such a
lane, is taken out again (``sweep``), and its place is free.
"""

from __future__ import annotations

from memdiag.allocator.engine.blocks import new_block, record_trace
from memdiag.allocator.engine.driver import device_bytes, new_segment, take_device_bytes

from memdiag.allocator.engine.memory import (  # isort: skip
    CALL, DEVICE_ALLOCS, DEVICE_FREES, FREE, FREE_BYTES, IS_LOGGED, LIMIT, LOG_ACTION, LOG_CALL, LOG_OFF, LOG_POOL, LOG_SEG, LOG_SIZE,
    LOG_STREAM, LOG_TENSOR, NONE, NUMBER, NUM_LOGGED, OFF, OOMS, RESERVED, RETRIES, SIZE, STREAM, SUCC, drop_row,
)  # fmt: skip
from memdiag.allocator.engine.ordered import remove
from memdiag.allocator.engine.release import lane_of, release_cached_blocks
from memdiag.allocator.engine.streams import synchronize_and_free_events

from memdiag.allocator.planned.slots import (  # isort: skip
    BEGIN, CYCLE, IS_ALONE, OWN_POOL, POINTER, ROVES, SLOT_ARENA, SLOT_CYCLE, SLOT_OFF, SLOT_SECOND, SLOT_SIZE, SLOT_USED, STAY, STEP,
    slot_of,
)  # fmt: skip
from memdiag.trace import schema
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

# How a request is served: its own place; a place made for more; a gap that the plan leaves just then. Not from the plan: nothing like it is
# near there, it asks for more than was planned for, its place is taken by something that lives longer than it should, there was no memory
# for the arena. OTHER: no request of the default pool.
WAYS: tuple[str, ...] = (
    "planned", "in a larger place", "in a gap", "not in the plan", "larger than planned", "place taken", "no room", "other",
)  # fmt: skip
OWN, LARGER, IN_GAP, UNKNOWN, TOO_LARGE, TAKEN, NO_ROOM, OTHER = range(8)
# Of an arena: its range (0: not yet), its bytes, those of them that are planned (what roves lies above), how many places are taken, whether
# there was no room for it.
A_RANGE, A_HEIGHT, A_PLANNED, A_TAKEN, A_REFUSED, NUM_ARENA = range(6)
_SMALL = 1 << 20  # requests up to here go to the caching allocator where they have no place: they may stay for long


@lean_part
def _place_at(taken: Array, a: int, num: int, low: int) -> int:
    """Returns how many of the taken places of an arena begin below ``low``."""
    left, right = 0, num
    while left < right:
        middle = (left + right) // 2
        if taken[a, 0, middle] < low:
            left = middle + 1
        else:
            right = middle
    return left


@lean_part
def _is_free(taken: Array, a: int, num: int, low: int, high: int) -> bool:
    """Whether nothing lies in a part of an arena."""
    at = _place_at(taken, a, num, low)
    return (at == num or taken[a, 0, at] >= high) and (at == 0 or taken[a, 1, at - 1] <= low)


@lean_part
def _open(r: Array, m: Array, log: Array, arenas: Array, a: int, lane: int) -> bool:
    """Gets an arena from the driver when it is needed first; whether it is there."""
    if arenas[A_RANGE, a] != NONE or arenas[A_REFUSED, a]:
        return arenas[A_RANGE, a] != NONE
    height = arenas[A_HEIGHT, a]
    for attempt in range(2):
        if (r[LIMIT] < 0 or r[RESERVED] + height <= r[LIMIT]) and take_device_bytes(r, device_bytes(height, 0)):
            r[RESERVED] += height
            r[DEVICE_ALLOCS] += 1
            arenas[A_RANGE, a] = new_segment(r, m, lane, height, 0)
            if r[IS_LOGGED]:
                at = r[NUM_LOGGED]
                r[NUM_LOGGED] = at + 1
                log[LOG_ACTION, at], log[LOG_CALL, at], log[LOG_SEG, at] = schema.SEGMENT_ALLOC, r[CALL], m[arenas[A_RANGE, a] + NUMBER]
                log[LOG_OFF, at], log[LOG_SIZE, at] = 0, height
                log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = m[lane + STREAM], 0, -1
            return True
        if attempt == 0:
            release_cached_blocks(r, m, log)
            r[RETRIES] += 1
    arenas[A_REFUSED, a] = 1
    return False


@lean_part
def _is_to_come(slots: Array, k: Array, s: int, a: int, horizon: int) -> bool:
    """Whether a slot of an arena is among the next ones of this step, or is for what this step is to leave behind."""
    if slots[SLOT_ARENA, s] != a or slots[SLOT_OFF, s] < 0:
        return False
    if s >= k[BEGIN + STAY]:
        return horizon > 0 and slots[SLOT_CYCLE, s] == k[CYCLE] and slots[SLOT_USED, s] < 0
    return 0 <= s - k[POINTER + STEP] < horizon and slots[SLOT_USED, s] != k[CYCLE]


@lean_part
def _gap(
    k: Array, slots: Array, arenas: Array, taken: Array, by_place: Array, a: int, size: int, horizon: int, bottom: int, limit: int
) -> int:  # fmt: skip
    """Returns the beginning of the tightest gap between two places that nothing lies in and no slot to come is to have; -1: none."""
    turn = 1 if k[CYCLE] % 2 == 0 else 0
    num, count, p, q = arenas[A_TAKEN, a], by_place.shape[1], 0, 0
    top, best, tightest = bottom, -1, 1 << 62
    while True:
        while q < count and not _is_to_come(slots, k, by_place[turn, q], a, horizon):
            q += 1
        low, high = limit, limit
        is_over = p >= num and q >= count
        if q < count:
            s = by_place[turn, q]
            low = slots[SLOT_SECOND, s] if turn and slots[SLOT_SECOND, s] >= 0 else slots[SLOT_OFF, s]
            high = low + slots[SLOT_SIZE, s]
        if p < num and (q >= count or taken[a, 0, p] <= low):
            low, high = taken[a, 0, p], taken[a, 1, p]
            p += 1
        else:
            q += 1
        if size <= min(low, limit) - top < tightest:
            best, tightest = top, min(low, limit) - top
        top = max(top, high)
        if is_over:
            return best


@lean_part
def _take(arenas: Array, taken: Array, a: int, low: int, high: int) -> None:
    """Writes down that a part of an arena is taken."""
    num = arenas[A_TAKEN, a]
    at = _place_at(taken, a, num, low)
    for p in range(num, at, -1):
        taken[a, 0, p], taken[a, 1, p] = taken[a, 0, p - 1], taken[a, 1, p - 1]
    taken[a, 0, at], taken[a, 1, at] = low, high
    arenas[A_TAKEN, a] = num + 1


@lean_part
def planned(r: Array, m: Array, log: Array, k: Array, slots: Array, arenas: Array, taken: Array, by_place: Array, a: int, lane: int,
             size: int, site: int) -> tuple[int, int]:  # fmt: skip
    """Returns the block of a request in the plan (NONE: it has none), and how it went (``WAYS``)."""
    s, low, way = slot_of(slots, k, size, site, a), -1, UNKNOWN
    if s >= 0 and slots[SLOT_OFF, s] == ROVES:
        low = _gap(k, slots, arenas, taken, by_place, a, size, 0, arenas[A_PLANNED, a], arenas[A_HEIGHT, a])
        way = OWN if low >= 0 else TAKEN
    elif s >= 0 and slots[SLOT_SIZE, s] < size:
        way = TOO_LARGE
    elif s >= 0:
        way = LARGER if slots[SLOT_SIZE, s] > size else OWN
        low, other = slots[SLOT_OFF, s], slots[SLOT_SECOND, s]
        if other >= 0 and k[CYCLE] % 2 == 0:
            low, other = other, low
        if not _is_free(taken, a, arenas[A_TAKEN, a], low, low + size):
            low = other
            if low < 0 or not _is_free(taken, a, arenas[A_TAKEN, a], low, low + size):
                low, way = -1, TAKEN
    if low < 0 and size > _SMALL and k[CYCLE] > 0 and (s < 0 or s < k[BEGIN + STAY]):
        horizon = by_place.shape[1]
        low = _gap(k, slots, arenas, taken, by_place, a, size, horizon, 0, arenas[A_PLANNED, a])
        while low < 0 and horizon > 0:  # the later the place is needed, the better the chance that it is free by then
            horizon //= 4
            low = _gap(k, slots, arenas, taken, by_place, a, size, horizon, 0, arenas[A_PLANNED, a])
        if low >= 0:
            way = IN_GAP
    if low < 0 or arenas[A_HEIGHT, a] == 0:
        return NONE, way
    if not _open(r, m, log, arenas, a, lane):
        return NONE, NO_ROOM
    _take(arenas, taken, a, low, low + size)
    return new_block(r, m, arenas[A_RANGE, a], low, size, FREE), way


@lean_part
def alone(r: Array, m: Array, log: Array, k: Array, arenas: Array, taken: Array, lane: int, size: int, tensor: int) -> int:
    """Returns a block that is a range of just its size; NONE: there is no room for it."""
    for attempt in range(2):
        if (r[LIMIT] < 0 or r[RESERVED] + size <= r[LIMIT]) and take_device_bytes(r, size):
            r[RESERVED] += size
            r[DEVICE_ALLOCS] += 1
            block = new_block(r, m, new_segment(r, m, lane, size, 0), 0, size, FREE)
            record_trace(r, m, log, schema.SEGMENT_ALLOC, block, size, -1)
            return block
        if attempt == 0:
            synchronize_and_free_events(r, m, log, NONE)
            sweep(r, m, log, k, arenas, taken)
            r[RETRIES] += 1
    r[OOMS] += 1
    if r[IS_LOGGED]:
        at = r[NUM_LOGGED]
        r[NUM_LOGGED] = at + 1
        log[LOG_ACTION, at], log[LOG_CALL, at], log[LOG_SEG, at], log[LOG_OFF, at] = schema.OOM, r[CALL], -1, max(r[FREE_BYTES], 0)
        log[LOG_SIZE, at], log[LOG_STREAM, at], log[LOG_POOL, at], log[LOG_TENSOR, at] = size, m[lane + STREAM], 0, tensor
    return NONE


@lean_part
def sweep(r: Array, m: Array, log: Array, k: Array, arenas: Array, taken: Array) -> None:
    """Makes the places free whose blocks' frees have ended."""
    for a in range(arenas.shape[1]):
        lane = lane_of(r, k[OWN_POOL], 0, a)
        while m[lane + SUCC] != lane:
            block = m[lane + SUCC]
            remove(m, block)
            if k[IS_ALONE]:
                record_trace(r, m, log, schema.SEGMENT_FREE, block, m[block + SIZE], -1)
                r[RESERVED] -= m[block + SIZE]
                r[FREE_BYTES] += m[block + SIZE]
                r[DEVICE_FREES] += 1
            else:
                num = arenas[A_TAKEN, a]
                for p in range(_place_at(taken, a, num, m[block + OFF]), num - 1):
                    taken[a, 0, p], taken[a, 1, p] = taken[a, 0, p + 1], taken[a, 1, p + 1]
                arenas[A_TAKEN, a] = num - 1
            drop_row(r, m, block)
