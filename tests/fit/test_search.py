"""The search of ``memdiag fit``: its frontier is that of an exhaustive search, with fewer runs."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.fit.grid import make_grid, read_axes
from memdiag.fit.search import FitSearch, RunOutcome, frontier

GIB = 1 << 30


def searched(grid, peak, capacities, *, is_exhaustive=False, failing=()):
    """Runs a search on made-up peaks; returns it and the number of runs."""
    search = FitSearch(grid, tuple(capacities), is_exhaustive)
    while (cell := search.next()) is not None:
        assert cell not in search.outcomes
        needed = peak(grid.values(cell))
        fits = tuple(needed <= capacity for capacity in capacities)
        search.outcomes[cell] = RunOutcome() if cell in failing else RunOutcome(needed, fits)
    return search, len(search.outcomes)


def megatron_like(weights, activations):
    """Returns a peak as of tensor and pipeline parallel training: weights are divided, some activations are not."""

    def peak(values):
        tp, pp, mbs = (int(values[name]) for name in ("tp", "pp", "mbs"))
        in_flight = 1.3 if pp > 1 else 1.0
        return int(weights / (tp * pp) + activations * mbs * in_flight * (0.8 / tp + 0.2) + 2 * GIB)

    return peak


def test_at_most_two_fifths_of_the_configurations_run():
    grid = make_grid(read_axes(["tp=1,2,4,8 pp=1,2,4 mbs=1,2,4,8"]))
    chooser, total = random.Random(11), 0  # noqa: S311 - examples
    for _ in range(20):
        peak = megatron_like(chooser.uniform(20, 300) * GIB, chooser.uniform(1, 12) * GIB)
        search, runs = searched(grid, peak, [79 * GIB])
        total += runs
        assert frontier(search, 0) == frontier(searched(grid, peak, [79 * GIB], is_exhaustive=True)[0], 0)
    assert total <= 0.4 * 20 * len(grid.cells)


def test_an_order_on_two_axes_is_followed_like_a_staircase():
    axes = read_axes(["tp=1,2,4,8 pp=1,2,4 mbs=1,2,4,8"])
    grid, lines = make_grid(axes), make_grid(read_axes(["tp=1,2,4,8 pp=1,2,4 mbs=1,2,4,8"], None, []))
    chooser, runs, without = random.Random(7), 0, 0  # noqa: S311 - examples
    for _ in range(20):
        peak = megatron_like(chooser.uniform(20, 300) * GIB, chooser.uniform(1, 12) * GIB)
        search, count = searched(grid, peak, [79 * GIB])
        runs, without = runs + count, without + searched(lines, peak, [79 * GIB])[1]
        assert count <= 3 * (4 + 4)
        assert frontier(search, 0) == frontier(searched(grid, peak, [79 * GIB], is_exhaustive=True)[0], 0)
    assert runs <= 0.3 * 20 * len(grid.cells)
    assert runs < 0.85 * without


def test_runs_that_contradict_an_order_end_it():
    grid = make_grid(read_axes(["tp=1,2,4 mbs=1,2,4"]))
    search = FitSearch(grid, (100,))
    search.outcomes = {(0, 2): RunOutcome(60, (True,))}
    assert search.decided((2, 0), 0) == (True, (0, 2))
    assert search.next() is None
    # A larger tp with a smaller micro-batch needs more, as if it had been run for another device.
    search.outcomes[2, 0] = RunOutcome(90, (True,))
    assert search.decided((1, 0), 0) is None
    assert search.refuted == {0}
    assert search.next() is not None
    assert search.decided((0, 0), 0) == (True, (0, 2))


def test_segments_of_the_allocator_do_not_contradict_an_order():
    search = FitSearch(make_grid(read_axes(["tp=1,2 mbs=1,2"])), (1000,))
    search.outcomes = {(0, 0): RunOutcome(500, (True,)), (1, 0): RunOutcome(504, (True,))}
    assert search.decided((1, 0), 0) == (True, (1, 0))
    assert not search.refuted


def test_the_nearest_run_is_named_for_an_inferred_outcome():
    grid = make_grid(read_axes(["tp=1,2,4 mbs=1,2,4"]))
    search = FitSearch(grid, (10,))
    search.outcomes = {(0, 1): RunOutcome(8, (True,)), (2, 1): RunOutcome(4, (True,)), (0, 2): RunOutcome(16, (False,))}
    assert search.decided((2, 0), 0) == (True, (2, 1))
    assert search.decided((1, 1), 0)[0]
    assert search.decided((1, 2), 0) is None


def test_the_order_of_the_runs_does_not_change_what_decides():
    grid = make_grid(read_axes(["tp=1,2,4 mbs=1,2,4"]))
    runs = [((0, 1), RunOutcome(8, (True,))), ((1, 0), RunOutcome(5, (True,))), ((0, 2), RunOutcome(16, (False,)))]
    found = []
    for order in itertools.permutations(runs):
        search = FitSearch(grid, (10,))
        for cell, outcome in order:
            search.outcomes[cell] = outcome
            search.undecided()
        found.append([search.decided(cell, 0) for cell in grid.cells])
    assert all(each == found[0] for each in found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=9, max_size=9),
    st.lists(st.integers(0, 40), min_size=9, max_size=9),
    st.lists(st.integers(1, 400), min_size=1, max_size=3),
)
def test_the_frontier_is_exact_for_any_growing_peak(by_mbs, by_seq, capacities):
    grid = make_grid(read_axes(["mbs=1..8", "seq=1..8", "mode=a,b"]))

    def peak(values):
        more = 17 if values["mode"] == "b" else 0
        return 1 + sum(by_mbs[: int(values["mbs"])]) + sum(by_seq[: int(values["seq"])]) + more

    search, _ = searched(grid, peak, capacities)
    for device, capacity in enumerate(capacities):
        for cell, fits in frontier(search, device).items():
            assert fits == (peak(grid.values(cell)) <= capacity)


def test_an_error_decides_only_its_own_configuration():
    grid = make_grid(read_axes(["mbs=1,2,4,8"]))
    search, _ = searched(grid, lambda values: int(values["mbs"]), [3], failing={(0,), (3,)})
    found = frontier(search, 0)
    assert found[0,] in {None, True}
    assert (found[1,], found[2,]) == (True, False)


def test_without_an_ordered_axis_every_configuration_runs():
    grid = make_grid(read_axes(["pp=1,2,4"]))
    assert searched(grid, lambda values: 8 // int(values["pp"]), [4])[1] == 3


def test_runs_at_the_same_time_are_of_different_lines():
    grid = make_grid(read_axes(["mbs=1..8", "ckpt=none,full"]))
    search = FitSearch(grid, (4,))
    first = search.next()
    second = search.next([first])
    assert search.line_of(first) != search.line_of(second)
    assert search.next([first, second]) is None
