"""Equal values get equal numbers, however they are found: with the hash table or by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace import distinct as module
from memdiag.trace.distinct import distinct

LONG = 2 * module._SLOTS


@pytest.mark.parametrize("different", [1, 1000, module._SLOTS // 2, module._SLOTS // 2 + 1, LONG])
@pytest.mark.parametrize("spacing", [1, 512, 1 << 32])
def test_values_are_numbered_as_by_sorting(different, spacing):
    values = (np.random.default_rng(0).permutation(LONG) % different) * spacing - spacing * 7
    values.flags.writeable = False
    found, number = distinct(values)
    expected, place = np.unique(values, return_inverse=True)
    assert np.array_equal(found, expected)
    assert np.array_equal(number, place)
    assert number.dtype == np.int32


def test_values_with_nearly_equal_hashes_are_sorted():
    candidates = np.arange(1 << 21, dtype=np.int64)
    code = (candidates ^ candidates >> 9) * module._PRIME & module._BITS
    near = candidates[((code ^ code >> 15) & (module._SLOTS - 1)) < 64]
    values = np.tile(near, LONG // len(near) + 1)
    found, number = distinct(values)
    assert len(near) > 500
    assert np.array_equal(found, near)
    assert np.array_equal(found[number], values)
