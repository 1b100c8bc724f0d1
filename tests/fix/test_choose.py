"""Choosing remedies: the plan is the cheapest of all sets that fit, in cases small enough to try all of them."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.fix import choose
from memdiag.fix.base import Proposal
from memdiag.fix.case import Given, Peaks
from memdiag.fix.edit import Edit

FREE, BLOCKS, STATE = "chunked-loss", "checkpoint", "offload-optimizer"
NUM_BLOCKS = 10
FIRST_BLOCK = 10


class Case:
    """A program in which remedies drop tensors of known sizes."""

    def __init__(self, needed, budget, saves, given=None):
        self.needed, self.budget, self.saves, self.given = needed, budget, saves, given or Given()

    def after(self, given):
        return Case(self.needed, self.budget, self.saves, given)

    def peaks(self, edit):
        peak = self.needed - sum(self.saves.get(row, 0) for row in edit.dropped)
        return Peaks(peak, peak, peak <= self.budget)

    def peaks_given(self, given):
        return self.peaks(given.edit)


def proposal(name, rows, cost):
    return Proposal(name, name, (), Edit(dropped=frozenset(rows)), "", "", copy_us=cost)


def remedies(costs):
    """A remedy without a cost, one that takes as few blocks as needed, and one whose cost is fixed."""

    def blocks(case):
        for count in range(1, NUM_BLOCKS + 1):
            found = proposal(BLOCKS, range(FIRST_BLOCK, FIRST_BLOCK + count), count * costs[BLOCKS])
            if case.peaks(case.given.edit | found.edit).fits or count == NUM_BLOCKS:
                yield found
                return

    return {
        FREE: SimpleNamespace(propose=lambda _: [proposal(FREE, [0], 0)]),
        BLOCKS: SimpleNamespace(propose=blocks),
        STATE: SimpleNamespace(propose=lambda _: [proposal(STATE, [2], costs[STATE])]),
    }


def chosen_with(case, costs, monkeypatch):
    monkeypatch.setattr(choose, "PROGRAM_REMEDIES", remedies(costs))
    monkeypatch.setattr(choose, "by_hand", lambda _: [])
    return choose.choose(case, unsafe=False)


def test_a_remedy_without_a_cost_is_kept_if_others_then_cost_less(monkeypatch):
    """Without the chunked loss, all blocks would be recomputed together with the optimizer on the host."""
    saves = {0: 30, 2: 60} | {FIRST_BLOCK + number: 5 for number in range(NUM_BLOCKS)}
    plan = chosen_with(Case(200, 100, saves), {BLOCKS: 4, STATE: 100}, monkeypatch)
    assert [(each.name, each.cost_us) for each in plan.chosen] == [(FREE, 0), (BLOCKS, 8), (STATE, 100)]
    assert {id(each) for each in plan.chosen} <= {id(each) for each, _ in plan.alone}
    assert plan.predicted.allocated == 100


def test_a_costly_remedy_is_not_chosen_if_a_cheaper_one_is_enough(monkeypatch):
    saves = {0: 30, 2: 60} | {FIRST_BLOCK + number: 8 for number in range(NUM_BLOCKS)}
    plan = chosen_with(Case(200, 120, saves), {BLOCKS: 50, STATE: 100}, monkeypatch)
    assert [each.name for each in plan.chosen] == [FREE, STATE]  # seven blocks would cost 350


@pytest.mark.parametrize("seed", range(20))
def test_no_set_that_fits_is_cheaper(seed, monkeypatch):
    made = np.random.default_rng(seed)
    saves = {0: int(made.integers(10, 50)), 2: int(made.integers(10, 80))}
    saves |= {FIRST_BLOCK + number: int(made.integers(2, 9)) for number in range(NUM_BLOCKS)}
    costs = {BLOCKS: int(made.integers(1, 30)), STATE: int(made.integers(1, 200))}
    case = Case(200, int(200 - made.uniform(0.2, 0.95) * sum(saves.values())), saves)
    plan = chosen_with(case, costs, monkeypatch)
    options = [
        [proposal(FREE, [0], 0)],
        [
            proposal(BLOCKS, range(FIRST_BLOCK, FIRST_BLOCK + count), count * costs[BLOCKS])
            for count in range(1, NUM_BLOCKS + 1)
        ],
        [proposal(STATE, [2], costs[STATE])],
    ]
    flat = [(number, each) for number, kind in enumerate(options) for each in kind]
    fitting = [
        sum(each.cost_us for _, each in chosen)
        for count in (1, 2, 3)
        for chosen in combinations(flat, count)
        if len({number for number, _ in chosen}) == count
        and case.needed - sum(saves[row] for _, each in chosen for row in each.edit.dropped) <= case.budget
    ]
    assert plan.predicted.fits
    assert sum(each.cost_us for each in plan.chosen) == min(fitting)


def test_a_remedy_that_is_left_out_does_not_come_back_after_another_one(monkeypatch):
    saves = {0: 30, 2: 60} | {FIRST_BLOCK + number: 8 for number in range(NUM_BLOCKS)}
    monkeypatch.setattr(choose, "PROGRAM_REMEDIES", remedies({BLOCKS: 1, STATE: 100}))
    plan = choose.choose(Case(200, 120, saves), unsafe=False, without=[BLOCKS])
    assert [each.name for each in plan.chosen] == [FREE, STATE]


def test_a_plan_with_memory_to_spare_shows_the_peaks_of_the_whole_budget(monkeypatch):
    """With less memory, PyTorch releases cached memory earlier, so the peaks of the reduced budget are other ones."""
    saves = {0: 30, 2: 60} | {FIRST_BLOCK + number: 8 for number in range(NUM_BLOCKS)}
    monkeypatch.setattr(choose, "PROGRAM_REMEDIES", remedies({BLOCKS: 50, STATE: 100}))
    plan = choose.choose(Case(200, 110, saves), unsafe=False)
    whole = choose.with_whole_budget(Case(210, 120, saves), plan)
    assert (plan.predicted.allocated, whole.predicted.allocated, whole.base.allocated) == (110, 120, 210)


class Interfering(Case):
    """A program whose peak is higher with both of two remedies than with the second one only."""

    def after(self, given):
        return Interfering(self.needed, self.budget, self.saves, given)

    def peaks(self, edit):
        peaks = super().peaks(edit)
        return Peaks(peaks.reserved + 35, peaks.allocated, fits=False) if {0, 2} <= edit.dropped else peaks


def test_a_plan_that_does_not_fit_has_no_remedy_that_saves_nothing_with_later_ones(monkeypatch):
    plan = chosen_with(Interfering(200, 50, {0: 30, 2: 60}), {BLOCKS: 1, STATE: 100}, monkeypatch)
    assert ([each.name for each in plan.chosen], plan.predicted.reserved) == ([STATE], 140)
    assert {each.name for each, _ in plan.alone} == {FREE, STATE}
