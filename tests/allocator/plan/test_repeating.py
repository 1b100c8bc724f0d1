"""A plan of one step serves the next, as far as that is the same."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.plan.repeating import repeat

# size, born, died, within a step of 20 events; the last two outlive it
STEP = [(1024, 0, 9), (2048, 1, 4), (2048, 5, 8), (512, 6, 12), (4096, 10, 15), (512, 16, 40), (8192, 17, 1000)]


def steps(*changed):
    rows = [(size, born + 20 * k, died + 20 * k, k) for k, step in enumerate(changed) for size, born, died in step]
    size, born, died, number = np.array(rows, np.int64).T
    return size, born, died, number


def test_the_same_again():
    result = repeat(*steps(STEP, STEP, STEP), 0, 1)
    assert (result.num_requests, result.num_fallbacks, result.beside_bytes) == (5, 0, 0)
    assert result.plan_bytes == 4608
    assert result.load_bytes <= result.reserved_bytes
    assert result.resident_bytes == 8192 * 2 + 512 * 2


def test_another_size_falls_back():
    longer = [(6000, 10, 15) if row == STEP[4] else row for row in STEP]
    result = repeat(*steps(STEP, longer, STEP), 0, 1)
    assert (result.num_requests, result.num_fallbacks) == (5, 1)
    assert result.beside_bytes == result.fallback_bytes == 6144


def test_a_request_that_is_missing_or_new_costs_no_other():
    without = [row for row in STEP if row != STEP[1]]
    assert repeat(*steps(STEP, without, STEP), 0, 1).num_fallbacks == 0
    assert repeat(*steps(without, STEP, STEP), 0, 1).num_fallbacks == 1


def test_what_lives_longer_than_planned_is_not_overwritten():
    longer = [(1024, 0, 19) if row == STEP[0] else row for row in STEP]
    result = repeat(*steps(STEP, longer, STEP), 0, 1)
    assert 0 < result.num_fallbacks < 5
    assert result.fallback_share == result.num_fallbacks / 5


def test_a_step_without_requests():
    result = repeat(*steps(STEP, [], STEP), 0, 1)
    assert (result.num_requests, result.fallback_share) == (0, 0.0)
