"""Plans are valid, provably optimal where possible, and deterministic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator.placement import improve, solver
from memdiag.allocator.placement.api import plan
from memdiag.allocator.placement.model import SearchLimits
from memdiag.allocator.placement.rivals import rivals
from memdiag.allocator.placement.sweeper import highest_totals, load_of, section_spans, sweep
from memdiag.allocator.placement.validator import problems
from memdiag.errors import MemdiagError

SHARED = Path(__file__).parents[4] / "shared" / "data" / "other"
ROW = st.tuples(st.integers(0, 9), st.integers(0, 6), st.integers(0, 9)).map(
    lambda row: (row[0], row[0] + row[1], row[2])
)
LISTS = st.lists(ROW, max_size=6)
LONG_LISTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 99)).map(lambda r: (r[0], r[0] + r[1], r[2])),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(rows=LISTS)
def test_a_few_are_placed_as_low_as_can_be(made_up, rows):
    size, lower, upper = made_up.columns(rows)
    made = plan(size, lower, upper, limits=SearchLimits(seconds=None))
    assert made.height_bytes == made_up.lowest_height(rows)
    assert made.ended in {"load", "proved"}
    assert made.load_bytes <= made.bound_bytes <= made.height_bytes


@settings(max_examples=60, deadline=None)
@given(rows=LONG_LISTS, align=st.sampled_from([1, 3, 64]), capacity=st.none() | st.integers(0, 3000))
def test_every_plan_is_right(made_up, rows, align, capacity):
    size, lower, upper = made_up.columns(rows)
    made = plan(size, lower, upper, align, capacity, limits=SearchLimits(seconds=0.2))
    assert problems(made.offsets, size, lower, upper, align=align, height=made.height_bytes) == []
    assert made.height_bytes >= made.load_bytes == load_of(-(-size // align) * align, lower, upper)
    assert made.height_bytes % align == 0
    if made.ended == "capacity":
        assert made.height_bytes <= capacity
    assert all(rival.height_bytes >= made.load_bytes for rival in rivals(size, lower, upper, align))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(ROW.filter(lambda row: row[0] < row[1] and row[2] > 0), min_size=1, max_size=12))
def test_sections_keep_every_crowd(made_up, rows):
    size, lower, upper = made_up.columns(rows)
    first, last, num = section_spans(lower, upper)
    live = {frozenset(np.flatnonzero((lower <= t) & (upper > t)).tolist()) for t in range(20)}
    kept = {frozenset(np.flatnonzero((first <= s) & (last > s)).tolist()) for s in range(num)}
    assert kept <= live
    assert all(any(crowd <= other for other in kept) for crowd in live)
    partitions = sweep(size, lower, upper)
    assert sorted(np.concatenate([partition.buffer_idxs for partition in partitions]).tolist()) == list(
        range(len(rows))
    )
    assert max(partition.base + partition.bound for partition in partitions) == load_of(size, lower, upper)
    for partition in partitions:
        wanted = [partition.total[a:b].max() for a, b in zip(partition.lower, partition.upper, strict=True)]
        assert highest_totals(partition).tolist() == wanted


@pytest.mark.parametrize("seed", range(3))
def test_what_was_cut_from_one_piece_fits_it(made_up, seed):
    size, lower, upper = made_up.columns(made_up.cut(60, 100, 1000, seed))
    made = plan(size, lower, upper, capacity=1000, limits=SearchLimits(seconds=None))
    assert made.height_bytes == made.load_bytes == 1000


def test_the_same_every_time(made_up):
    size, lower, upper = made_up.columns(made_up.cut(60, 100, 1000, 7))
    once, again = (plan(size, lower, upper, limits=SearchLimits(seconds=None, seed=3)) for _ in range(2))
    assert once.ended != "time"
    assert once.offsets.tolist() == again.offsets.tolist()


def test_without_time_there_is_a_plan_all_the_same(made_up):
    size, lower, upper = made_up.columns(made_up.cut(60, 100, 1000, 7))
    made = plan(size, lower, upper, limits=SearchLimits(seconds=0.0))
    assert made.ended in {"time", "load"}
    assert made.height_bytes >= 1000


def test_nothing():
    made = plan(np.empty(0), np.empty(0), np.empty(0))
    assert (made.height_bytes, made.load_bytes, made.ratio) == (0, 0, 1.0)
    made = plan(np.array([0, 5]), np.array([0, 3]), np.array([4, 3]))
    assert (made.height_bytes, made.offsets.tolist()) == (0, [0, 0])


def test_what_lives_all_the_time_lies_below():
    made = plan(np.array([100, 7, 9]), np.array([0, 0, 5]), np.array([9, 4, 9]))
    assert made.height_bytes == 109


def test_alignment_counts():
    made = plan(np.array([1, 513, 512]), np.zeros(3), np.ones(3), align=512)
    assert made.height_bytes == made.load_bytes == 2048
    assert min(made.offsets.tolist()) == 0


def test_more_than_can_be_is_refused():
    with pytest.raises(MemdiagError, match="negative"):
        plan(np.array([-1]), np.zeros(1), np.ones(1))
    with pytest.raises(MemdiagError, match="alignment 0"):
        plan(np.array([1]), np.zeros(1), np.ones(1), align=0)
    with pytest.raises(MemdiagError, match="64 bits"):
        plan(np.full(4, 1 << 61), np.zeros(4), np.ones(4))


@pytest.mark.parametrize("name", ["B", "C", "F"])
def test_challenging_ones_fit_their_capacity(name):
    path = SHARED / f"google__minimalloc__benchmarks__challenging__{name}.1048576.csv"
    if not path.is_file():
        pytest.skip("the benchmarks are not beside the repository")
    lower, upper, size = np.loadtxt(path, np.int64, delimiter=",", skiprows=1, usecols=(1, 2, 3), unpack=True)
    made = plan(size, lower, upper, capacity=1 << 20, limits=SearchLimits(seconds=None))
    assert made.height_bytes <= 1 << 20
    assert problems(made.offsets, size, lower, upper, height=1 << 20) == []


def test_large_ones_are_improved_too(made_up, monkeypatch):
    """The method for thousands of buffers improves on first fit, and gives the same plan every time.

    The test uses sixty buffers. The method makes first-fit passes, and descents that check only crowded sections.
    """
    monkeypatch.setattr(improve, "LARGE", 10)
    monkeypatch.setattr(improve, "STEPS_OF_ROOM", 1)
    monkeypatch.setattr(solver, "PROPAGATE_UP_TO", 0)
    monkeypatch.setattr(improve, "PATIENCE", 8)
    monkeypatch.setattr(improve, "NEAR", 9.0)
    for seed in range(3):
        size, lower, upper = made_up.columns(made_up.cut(60, 100, 1000, seed))
        simple = min(rival.height_bytes for rival in rivals(size, lower, upper, 1))
        once, again = (plan(size, lower, upper, limits=SearchLimits(seconds=None)) for _ in range(2))
        assert once.height_bytes < simple
        assert once.offsets.tolist() == again.offsets.tolist()
