"""The checker detects every kind of error in a placement."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.allocator.placement.validator import problems

LOWER, UPPER = np.array([0, 0, 3, 5]), np.array([5, 3, 9, 9])
SIZE = np.array([512, 1024, 512, 512])
GOOD = np.array([0, 512, 512, 0])


def said(offsets, **options):
    return problems(np.array(offsets), SIZE, LOWER, UPPER, **options)


def test_a_right_one_is_accepted():
    assert said(GOOD, align=512, height=1536) == []


@pytest.mark.parametrize(
    ("offsets", "options", "words"),
    [
        ([0, 511, 512, 0], {}, "buffers 0 and 1 share bytes at 0"),
        ([0, 512, 0, 512], {}, "buffers 0 and 2 share bytes at 3"),
        ([0, 512, 512, 512], {}, "buffers 2 and 3 share bytes at 5"),
        ([0, 512, 512, 100], {}, "buffers 2 and 3 share bytes at 5"),
        ([-512, 512, 512, 0], {}, "buffer 0 lies below 0"),
        ([0, 513, 512, 0], {"align": 512}, "buffer 1 at 513 is not aligned to 512"),
        ([0, 512, 512, 0], {"height": 1535}, "buffer 1 ends at 1536, above the height 1535"),
        ([0, 512, 512], {}, "3 offsets for 4 buffers"),
    ],
)
def test_broken_plans(offsets, options, words):
    assert words in said(offsets, **options)


def test_one_inside_another():
    assert problems(np.array([0, 100]), np.array([1000, 10]), np.array([0, 5]), np.array([9, 6])) == [
        "buffers 0 and 1 share bytes at 5"
    ]


def test_at_the_same_place_at_the_same_time():
    assert problems(np.zeros(2, np.int64), np.array([8, 8]), np.zeros(2, np.int64), np.ones(2, np.int64))


def test_what_has_no_life_or_no_bytes_is_in_nobodys_way():
    offsets, size = np.zeros(3, np.int64), np.array([8, 8, 0])
    assert problems(offsets, size, np.array([0, 2, 0]), np.array([4, 2, 4]), height=8) == []


def test_many_problems_are_cut_short():
    num = 50
    assert len(problems(np.zeros(num, np.int64), np.ones(num, np.int64), np.zeros(num), np.ones(num), limit=7)) == 7
