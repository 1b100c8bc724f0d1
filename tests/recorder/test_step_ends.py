"""Which optimizer steps end a training step: one per iteration, also with several optimizers."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from memdiag.recorder.step_ends import PATIENCE, StepEnds
from memdiag.recorder.watching.steps import Steps


class Optimizer:
    """An optimizer."""


def counted(sequence, ends=None, made=None):
    """Returns the number of training steps after each iteration; an iteration is a word, a letter an optimizer."""
    ends, made = ends or StepEnds(), {} if made is None else made
    steps, after = 0, []
    for word in sequence:
        for letter in word:
            steps += ends.ends(made.setdefault(letter, Optimizer()))
        after.append(steps)
    return after


@pytest.mark.parametrize("word", ["A", "AB", "ABC", "ABCD", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"])
def test_an_iteration_is_one_step_with_one_and_with_several_optimizers(word):
    assert counted([word] * 10) == list(range(1, 11))


@pytest.mark.parametrize(
    ("word", "first"),
    [("AAAAAB", 5), ("AAB", 2), ("GDDDDD", 1), ("GGDDDDD", 2), ("AAAAABBBBBCCCCC", 5)],
)
def test_an_optimizer_that_steps_several_times_is_counted_each_time_only_before_another_one_steps(word, first):
    assert counted([word] * 10) == list(range(first, first + 10))


def test_an_optimizer_that_joins_later_leaves_one_step_per_iteration():
    assert counted(["A"] * 5 + ["AB"] * 5) == list(range(1, 11))


def test_a_rare_optimizer_does_not_make_steps_long_for_ever():
    after = counted(["A" * 100 + "B"] * 3)
    assert after[0] == 100
    assert after[2] - after[1] == 100


def test_a_phase_with_another_optimizer_is_counted_after_a_few_steps():
    after = counted(["A"] * 20 + ["B"] * 40)
    assert after[:20] == list(range(1, 21))
    assert after[-1] == 60 - PATIENCE - 1


def test_trainings_one_after_the_other_count_each_step():
    made, ends = {}, StepEnds()
    assert counted("AAA", ends, made) == [1, 2, 3]
    made.clear()
    gc.collect()
    assert counted("BBB", ends, made) == [1, 2, 3]


def test_an_optimizer_without_weak_references_is_counted():
    class Small:
        __slots__ = ()

    made = {"A": Small(), "B": Small()}
    assert counted(["AB"] * 5, made=made) == [1, 2, 3, 4, 5]


def test_a_watch_counts_by_the_same_rule(monkeypatch):
    hooks = []
    module = SimpleNamespace(register_optimizer_step_post_hook=lambda hook: hooks.append(hook) or SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)
    steps, made = Steps(), {letter: Optimizer() for letter in "CA"}
    steps.install()
    for letter in "C" * 2 + "ACCC" * 5 + "A":  # the watch begins in the middle of an iteration
        hooks[0](made[letter], (), {})
    assert steps.count == 2 + 5
