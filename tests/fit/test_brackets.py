"""Middle numbers of pipeline stages are inferred from both sides, after runs have confirmed the rule."""

from __future__ import annotations

import random

import pytest

from memdiag.fit.grid import make_grid, read_axes
from memdiag.fit.search import FitSearch, RunOutcome, frontier
from tests.fit.test_search import GIB, searched

CAPACITY = 79 * GIB
GRID = make_grid(read_axes(["tp=1,2,4,8 pp=1,2,4 mbs=1,2,4,8"]))


def in_flight(schedule, pp, micro):
    """Returns the activations that the first stage keeps, in multiples of all layers' for one micro-batch."""
    if pp == 1:
        return 1.0
    return {
        "1F1B": min(pp, micro) / pp,
        "interleaved": min(pp, micro) / pp * (1 + (pp - 1) / (2 * pp)),
        "uneven layers": 1.25 * min(pp, micro) / pp,
        "GPipe": micro / pp,
    }[schedule]


def example(schedule, seed):
    """Returns a made-up peak by configuration: weights are divided, activations depend on the schedule."""
    chooser = random.Random(seed)  # noqa: S311 - examples
    micro = chooser.choice([2, 4, 8, 16])
    weights, activations = chooser.uniform(10, 300), chooser.uniform(0.3, 12)
    logits, divided = chooser.uniform(0, 6), chooser.uniform(0.5, 1)

    def peak(values):
        tp, pp, mbs = (int(values[name]) for name in ("tp", "pp", "mbs"))
        kept = activations * mbs * (divided / tp + 1 - divided) * in_flight(schedule, pp, micro)
        return int((2 + weights / (tp * pp) + kept + (logits * mbs / tp if pp == 1 else 0)) * GIB)

    return peak


@pytest.mark.parametrize("schedule", ["1F1B", "interleaved", "uneven layers", "GPipe"])
def test_no_outcome_is_wrong_whatever_the_schedule(schedule):
    runs, num_examples = 0, 12
    for seed in range(num_examples):
        peak = example(schedule, seed)
        search, count = searched(GRID, peak, [CAPACITY])
        assert frontier(search, 0) == {cell: peak(GRID.values(cell)) <= CAPACITY for cell in GRID.cells}
        runs += count
    assert runs <= 0.4 * num_examples * len(GRID.cells)


def search_with(peaks):
    """Returns a search over tp, pp and mbs after runs, by the indices of their values: peaks of at most 50 fit."""
    grid = make_grid(read_axes(["tp=1,2,4 pp=1,2,4 mbs=1,2,4"]))
    return FitSearch(grid, (50,), outcomes={cell: RunOutcome(peak, (peak <= 50,)) for cell, peak in peaks.items()})


CONFIRMING = {(0, 0, 0): 70, (0, 1, 0): 65, (0, 2, 0): 60, (2, 0, 2): 90, (2, 1, 2): 85, (2, 2, 2): 80}
ENDS = {(1, 0, 0): 40, (1, 2, 0): 30}


def test_an_outcome_inferred_from_both_sides_names_both_runs():
    search = search_with({**CONFIRMING, **ENDS})
    assert search.decided((1, 1, 0), 0) is None
    assert search.bracketed((1, 1, 0), 0) == (True, (1, 0, 0), (1, 2, 0))


@pytest.mark.parametrize(
    "changed",
    [
        {(2, 1, 2): None},  # the middle value was run in one place only
        {(2, 1, 2): 92},  # the peak grows there, and shrinks elsewhere
        {(1, 2, 0): 60},  # the outcomes on both sides differ
        {(0, 1, 0): None, (2, 0, 0): 39, (2, 1, 0): 38, (2, 2, 0): 37},  # it does not lie between the places
    ],
)
def test_nothing_is_inferred_without_confirmation(changed):
    peaks = {**CONFIRMING, **ENDS, **changed}
    assert search_with({cell: peak for cell, peak in peaks.items() if peak}).bracketed((1, 1, 0), 0) is None


def test_a_contradicted_rule_leaves_no_outcome_inferred():
    peaks = {**CONFIRMING, **ENDS, (1, 0, 1): 51, (1, 2, 1): 61}
    search = search_with(peaks)
    assert search.bracketed((1, 1, 0), 0) is None
    assert (1, 1, 0) in search.undecided()
