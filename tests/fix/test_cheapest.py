"""Choosing the cheapest parts to recompute."""

from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.allocator.workload import ALLOC, FREE
from memdiag.fix import cheapest
from memdiag.fix.cheapest import RecomputableParts, cheapest_sets, good_sets
from memdiag.fix.edit import Edit, Repeat, live_curve
from memdiag.fix.remedies import checkpoint

from .test_edit import MIB, workload


def blocks(saved, costs, excludes=None):
    """Parts of a model whose peak is at the end of forward; a part is recomputed when all earlier ones are kept."""
    count = len(saved)
    live, change = [sum(saved)], [[-size for size in saved]]
    for at in range(count):
        live.append(sum(saved[: at + 1]))
        change.append([-size if i < at else 0 for i, size in enumerate(saved)])
    if excludes is None:
        excludes = np.zeros((count, count), bool)
    return RecomputableParts.of(np.array(live), np.array(change).T, np.array(costs), excludes)


def test_live_bytes_of_a_row_are_the_most_around_it():
    calls = [(ALLOC, 0, 4 * MIB), (ALLOC, 1, 100), (FREE, 0, 0), (FREE, 1, 0)]
    assert live_curve(workload(calls)).tolist() == [4 * MIB, 4 * MIB + 512, 512, 0, 0]


def test_sets_become_more_expensive_as_the_peak_falls():
    sets = cheapest_sets(good_sets(blocks([5, 3, 4, 2], [5, 4, 3, 2])))
    assert [each.cost for each in sets] == sorted(each.cost for each in sets)
    assert [each.peak for each in sets] == sorted((each.peak for each in sets), reverse=True)
    assert sets[0].chosen == (3,)


def test_a_part_and_one_inside_it_are_never_chosen_together():
    excludes = np.zeros((3, 3), bool)
    excludes[0, 1] = excludes[1, 0] = True
    for each in good_sets(blocks([5, 3, 4], [5, 3, 4], excludes)):
        assert not {0, 1} <= set(each.chosen)


def test_no_parts():
    assert good_sets(RecomputableParts.of(np.ones(3), np.empty((0, 3)), np.empty(0), np.empty((0, 0)))) == []


@pytest.mark.parametrize("seed", range(8))
def test_the_search_for_many_parts_is_near_the_best_of_all_sets(seed, monkeypatch):
    made = np.random.default_rng(seed)
    saved = made.integers(10, 100, 10).tolist()
    parts = blocks(saved, made.integers(10, 100, 10).tolist())
    every = good_sets(parts)
    monkeypatch.setattr(cheapest, "_ALL_SETS", 0)
    searched = good_sets(parts)
    for limit in range(int(parts.live.max()) - 20, min(each.peak for each in searched), -40):
        best, found = (min(each.cost for each in sets if each.peak <= limit) for sets in (every, searched))
        assert found <= 1.2 * best


def test_the_search_ends_if_a_part_and_one_inside_it_save_most_at_different_moments():
    change = np.zeros((14, 3), np.int64)
    change[0], change[1] = (-10, -2, 0), (-2, -10, 0)
    excludes = np.zeros((14, 14), bool)
    excludes[0, 1] = excludes[1, 0] = True
    parts = RecomputableParts(np.array([100, 100, 0]), change, np.arange(14, 0, -1), excludes)
    assert {each.chosen for each in good_sets(parts)} & {(0,), (1,)}


@pytest.mark.parametrize(("numbered", "found"), [(5, ["inc", "down.1", "down.2"]), (20, ["down.1", "down.2"])])
def test_numbered_layers_that_save_little_do_not_hide_the_other_parts(monkeypatch, numbered, found):
    saved = {"inc": 50, "inc.0": 0, "down.1": numbered, "down.2": numbered}

    def block(_, path):
        repeat = Repeat(list(saved).index(path), 1, 1, {})
        return checkpoint.Block(path, Edit(repeats=(repeat,)), saved[path], 1)

    monkeypatch.setattr(checkpoint, "block_of", block)
    monkeypatch.setattr(checkpoint, "_closed", lambda _: set())
    monkeypatch.setattr(checkpoint, "_children", lambda _: {"": ["inc"], "inc": ["inc.0"]})
    monkeypatch.setattr(checkpoint, "_saved_bytes", lambda _: 100)
    blocks = {"inc.0": (), "down.1": (), "down.2": ()}
    case = SimpleNamespace(memo={}, modules=SimpleNamespace(blocks=blocks), called=frozenset(blocks))
    assert [each.path for each in checkpoint.find_blocks(case) if each.saved_bytes] == found
