"""The search finds a placement exactly if one exists, as all orders of a few buffers show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator.placement import solver
from memdiag.allocator.placement.model import Lifespans
from memdiag.allocator.placement.sweeper import section_spans
from memdiag.allocator.placement.validator import problems

ROW = st.tuples(st.integers(0, 7), st.integers(1, 5), st.integers(1, 6)).map(
    lambda row: (row[0], row[0] + row[1], row[2])
)


def searched(size, lower, upper, order, height, **options):
    first, last, num = section_spans(lower, upper)
    load = np.array([size[(first <= s) & (last > s)].sum() for s in range(num)], np.int64)
    kept = options.pop("kept", np.arange(num))
    tracked = (np.searchsorted(kept, first).astype(np.int64), np.searchsorted(kept, last).astype(np.int64), load[kept])
    stop = options.pop("stop", np.zeros(1, np.int64))
    given = {"limit": 1_000_000, "split_every": 1, **options}
    ended, offsets, _ = solver.place_below(Lifespans(first, last, size), order, tracked, height, stop=stop, **given)
    if ended == solver.FOUND:
        assert problems(offsets, size, lower, upper, height=height) == []
    return ended


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6), data=st.data())
def test_found_where_there_is_one_and_impossible_where_there_is_none(made_up, rows, data):
    size, lower, upper = made_up.columns(rows)
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    best = made_up.lowest_height(rows)
    for options in ({}, {"split_every": 3}, {"kept": np.zeros(1, np.int64)}):
        assert searched(size, lower, upper, order, best, **options) == solver.FOUND
        assert searched(size, lower, upper, order, best - 1, **options) == solver.IMPOSSIBLE


@pytest.mark.parametrize("seed", range(5))
def test_without_a_gap(made_up, seed):
    size, lower, upper = made_up.columns(made_up.cut(25, 40, 60, seed))
    order = np.argsort(-(upper - lower), kind="stable")
    assert searched(size, lower, upper, order, 60) == solver.FOUND
    assert searched(size, lower, upper, order, 59) == solver.IMPOSSIBLE


def test_gives_up(made_up):
    size, lower, upper = made_up.columns(made_up.cut(25, 40, 60, 0))
    order = np.arange(25)
    assert searched(size, lower, upper, order, 60, limit=5) == solver.GAVE_UP
    assert searched(size, lower, upper, order, 60, stop=np.ones(1, np.int64)) == solver.GAVE_UP
