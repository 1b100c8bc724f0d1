"""The depth to which module calls are placed, if each placement needs a query to the allocator."""

from __future__ import annotations

import pytest

from memdiag.recorder.placing import Placing


class Run:
    """Simulates the steps of a model with nested module calls on a simulated clock."""

    def __init__(self, ask_seconds, step_seconds, *, is_quick=False):
        self.now = 0.0
        self.asked = 0
        self.ask_seconds, self.step_seconds = ask_seconds, step_seconds
        self.placing = Placing(self.position, is_quick=is_quick, clock=lambda: self.now)

    def position(self):
        self.asked += 1
        self.now += self.ask_seconds
        return 0, 1, 2

    def step(self, calls=(1, 10, 100, 500)):
        self.asked = 0
        for depth, count in enumerate(calls):
            for _ in range(count if depth <= self.placing.deepest else 0):
                assert self.placing() == (0, 1, 2)
        self.now += self.step_seconds
        self.placing.stepped()
        return self.asked


@pytest.mark.parametrize(
    ("ask_seconds", "step_seconds", "asked"),
    [
        pytest.param(20e-6, 1.0, 611, id="a long step is placed throughout"),
        pytest.param(20e-6, 0.1, 111, id="as it begins"),
        pytest.param(20e-6, 0.03, 11, id="a short step: blocks only"),
        pytest.param(20e-6, 0.001, 1, id="a very short one: the model only"),
        pytest.param(1e-3, 0.001, 0, id="nothing where even that takes as long as the step"),
    ],
)
def test_calls_are_placed_as_deep_as_three_percent_of_a_step_allows(ask_seconds, step_seconds, asked):
    run = Run(ask_seconds, step_seconds)
    for _ in range(30):
        run.step()
    assert run.step() == asked
    assert run.step() == asked, "and it stays so"
    assert asked * ask_seconds <= 0.03 * (step_seconds + asked * ask_seconds)


def test_the_first_step_does_not_change_the_depth():
    run = Run(1e-3, 1e-3)
    assert run.step() == 111
    assert run.step() == 111


def test_every_call_is_placed_if_a_query_is_free():
    run = Run(0.0, 1e-6, is_quick=True)
    for _ in range(5):
        assert run.step() == 611


def test_an_unused_device_does_not_increase_the_depth():
    run = Run(20e-6, 1.0)
    for _ in range(10):
        run.step(calls=())
    assert run.placing.deepest == 2
