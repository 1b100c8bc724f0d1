"""Buffers are placed around pinned ones; search rounds are limited by work."""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.api import plan
from memdiag.allocator.placement.around import place_around
from memdiag.allocator.placement.model import SearchLimits
from memdiag.allocator.placement.validator import problems


def test_what_is_pinned_stays_and_the_others_lie_around_it():
    # rows: offset, size, lower, upper; the first buffer is pinned at two times
    pins = np.array([[0, 1024, 0], [1024, 512, 1024], [0, 0, 6], [3, 9, 9]])
    size, lower, upper = np.array([1024, 1536, 512]), np.array([3, 0, 1]), np.array([6, 3, 9])
    offsets, height = place_around(size, lower, upper, pins, 512)
    assert offsets[0] == 0  # live between the two times of the first pinned buffer
    assert height == 3584
    columns = (
        np.concatenate(pair) for pair in ((offsets, pins[0]), (size, pins[1]), (lower, pins[2]), (upper, pins[3]))
    )
    assert problems(*columns, align=512, height=height) == []


def test_rounds_give_the_same_plan_every_time():
    chance = np.random.default_rng(3)
    lower = chance.integers(0, 200, 300)
    upper = lower + chance.integers(1, 40, 300)
    size = chance.integers(1, 60, 300) * 512
    first, second = (plan(size, lower, upper, 512, limits=SearchLimits(seconds=None, rounds=2)) for _ in range(2))
    assert (first.offsets == second.offsets).all()
    assert first.load_bytes <= first.height_bytes
    assert first.ended != "time"
