"""The driver as the allocator sees it: so many bytes, in pages of 2 MiB, and ranges of addresses that go up and never come back."""

from __future__ import annotations

from memdiag.allocator.engine.memory import (  # isort: skip
    ADDRESS, A_RANGE, COUNT, DEVICE_ALLOCS, DEVICE_FREES, FREE_BYTES, GIVEN, GIVEN_AT, GIVEN_BY_LANE, HELD, IS_BROKEN, IS_PRIVATE, LANE,
    LENGTH, NEXT_ADDRESS, NEXT_PLACE, NUMBER, NUM_BEFORE, NUM_GIVEN, NUM_RANGES, PAGE, PLACE, POOL, RESERVED, STATE, new_row, up,
)  # fmt: skip
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

GRAIN = 2 << 20


@lean_part
def take_device_bytes(r: Array, wanted: int) -> bool:
    """Takes device memory, whole pages of it; False: there is not as much."""
    if wanted > r[FREE_BYTES]:
        return False
    r[FREE_BYTES] -= wanted
    return True


@lean_part
def new_segment(r: Array, m: Array, lane: int, length: int, page: int) -> int:
    """Returns a new range of addresses. They are those that the driver gave while recording, as far as these are known.

    Where it is known what each was for, it is used for nothing else: a range of which nothing was ever mapped is in no recording.
    """
    number = r[NUM_RANGES]
    r[NUM_RANGES] += 1
    segment = new_row(r, m)
    m[segment + NUMBER], m[segment + PAGE], m[segment + LENGTH] = number, page, length
    m[segment + LANE], m[segment + STATE] = lane, A_RANGE
    known = number - r[NUM_BEFORE]
    if r[GIVEN_BY_LANE]:
        known = m[lane + GIVEN_AT]
        while known < r[NUM_GIVEN] and m[r[GIVEN] + r[NUM_GIVEN] + known] != lane:
            known += 1
        m[lane + GIVEN_AT] = known + 1
    if known < r[NUM_GIVEN] and m[r[GIVEN] + known] >= 0:
        m[segment + ADDRESS] = m[r[GIVEN] + known]
    else:
        m[segment + ADDRESS] = r[NEXT_ADDRESS]
        r[NEXT_ADDRESS] += up(length, GRAIN)
    if r[NEXT_PLACE] >= 0:
        m[segment + PLACE] = r[NEXT_PLACE]
        r[NEXT_PLACE] += up(length, GRAIN)
    else:
        m[segment + PLACE] = m[segment + ADDRESS]
    return segment


@lean_part
def count_device_alloc(r: Array, size: int) -> None:
    """Books memory that the driver gave."""
    r[RESERVED] += size
    r[DEVICE_ALLOCS] += 1


@lean_part
def device_bytes(size: int, page: int) -> int:
    """Returns the device memory behind ``size`` bytes of a range whose pages have ``page`` bytes (0: it is one piece)."""
    return up(size, GRAIN) if page == 0 else size // page * up(page, GRAIN)


@lean_part
def count_device_free(r: Array, m: Array, lane: int, size: int, page: int) -> None:
    """Books memory that was given back."""
    r[RESERVED] -= size
    m[m[lane + POOL] + HELD] -= size
    r[FREE_BYTES] += device_bytes(size, page)
    pool = m[lane + POOL]
    if m[pool + IS_PRIVATE]:
        # A private pool's count rises once for each allocation that needed the driver, however many ranges that mapped, and falls once
        # for each range unmapped; the allocator stops where it would fall below zero.
        if m[pool + COUNT] == 0:
            r[IS_BROKEN] = 1
            return
        m[pool + COUNT] -= 1
    r[DEVICE_FREES] += 1
