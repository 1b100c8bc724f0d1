"""The requests to skip until two steps continue equally, compared with a search that tries one number after another."""

import numpy as np
import pytest

from memdiag.allocator.calibration.aligned import _MATCH, _MOST_SKIPPED, _next_match


def one_after_another(first, second):
    for total in range(1, 2 * _MOST_SKIPPED):
        for a in range(max(0, total - _MOST_SKIPPED), min(total, _MOST_SKIPPED) + 1):
            b = total - a
            length = min(_MATCH, len(first) - a, len(second) - b)
            if length > 0 and (first[a : a + length] == second[b : b + length]).all():
                return a, b
    return None


@pytest.mark.parametrize("kinds", [2, 5, 40])
def test_the_fewest_requests_are_skipped(kinds):
    rng = np.random.default_rng(kinds)
    seen = set()
    for length in (1, 5, 12, 60, 300):
        for start in (0, 3, 20, 250):
            step = rng.integers(0, kinds, 600)
            first, second = step[:length], step[start : start + length + 5].copy()
            second[0] = kinds  # the search begins where the steps differ
            found = _next_match(first, second)
            assert found == one_after_another(first, second)
            seen.add(found is None)
    assert False in seen
