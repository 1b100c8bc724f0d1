"""The driver as the allocator sees it: so many bytes, in pages of 2 MiB, and ranges of addresses that go up and never come back."""

from __future__ import annotations

from memdiag.allocator.machine.memory import (
    A_RANGE,
    ADDRESS,
    COUNT,
    DEVICE_ALLOCS,
    DEVICE_FREES,
    FREE_BYTES,
    GIVEN,
    IS_BROKEN,
    IS_PRIVATE,
    LANE,
    LENGTH,
    NEXT_ADDRESS,
    NEXT_PLACE,
    NUM_GIVEN,
    NUM_RANGES,
    NUMBER,
    PAGE,
    PLACE,
    POOL,
    RESERVED,
    STATE,
    new_row,
    up,
)  # fmt: skip
from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array

GRAIN = 2 << 20


@njit_part
def charge(r: Array, size: int) -> bool:
    """Takes device memory; False: there is not as much."""
    taken = up(size, GRAIN)
    if taken > r[FREE_BYTES]:
        return False
    r[FREE_BYTES] -= taken
    return True


@njit_part
def obtain(r: Array, m: Array, lane: int, length: int, page: int) -> int:
    """Returns a new range of addresses. They are those that the driver gave while recording, as far as these are known."""
    number = r[NUM_RANGES]
    r[NUM_RANGES] += 1
    segment = new_row(r, m)
    m[segment + NUMBER], m[segment + PAGE], m[segment + LENGTH] = number, page, length
    m[segment + LANE], m[segment + STATE] = lane, A_RANGE
    if number < r[NUM_GIVEN] and m[r[GIVEN] + number] >= 0:
        m[segment + ADDRESS] = m[r[GIVEN] + number]
    else:
        m[segment + ADDRESS] = r[NEXT_ADDRESS]
        r[NEXT_ADDRESS] += up(length, GRAIN)
    if r[NEXT_PLACE] >= 0:
        m[segment + PLACE] = r[NEXT_PLACE]
        r[NEXT_PLACE] += up(length, GRAIN)
    else:
        m[segment + PLACE] = m[segment + ADDRESS]
    return segment


@njit_part
def gained(r: Array, size: int) -> None:
    """Books memory that the driver gave."""
    r[RESERVED] += size
    r[DEVICE_ALLOCS] += 1


@njit_part
def lost(r: Array, m: Array, lane: int, size: int) -> None:
    """Books memory that was given back."""
    r[RESERVED] -= size
    r[FREE_BYTES] += up(size, GRAIN)
    pool = m[lane + POOL]
    if m[pool + IS_PRIVATE]:
        # A private pool's count rises once for each allocation that needed the driver, however many ranges that mapped, and falls once
        # for each range unmapped; the allocator stops where it would fall below zero.
        if m[pool + COUNT] == 0:
            r[IS_BROKEN] = 1
            return
        m[pool + COUNT] -= 1
    r[DEVICE_FREES] += 1
