"""Optimizers that are not PyTorch's: their steps are reported like those of PyTorch's."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from memdiag.recorder.other_optimizers import OtherOptimizers


class Fastai:
    """What fastai.optimizer.Optimizer has."""

    def __init__(self):
        self.param_lists = [["weight"], ["bias"]]
        self.state = {"weight": {"grad_avg": 1}}

    def step(self, closure=None):
        return closure


class Keras:
    """What keras.src.optimizers.base_optimizer.BaseOptimizer has."""

    def __init__(self):
        self._trainable_variables = [SimpleNamespace(path="dense/kernel", value="kernel")]
        self.variables = [SimpleNamespace(name="iteration", value=0)]

    def apply(self, grads, trainable_variables=None):  # noqa: ARG002 - Keras's
        if len(self.variables) == 1:
            self.variables.append(SimpleNamespace(name="dense_kernel_momentum", value=2))
        if grads == "bad":
            raise ValueError


@pytest.fixture
def steps(monkeypatch):
    for name, attributes in (
        ("fastai.optimizer", {"Optimizer": Fastai}),
        ("keras.src.optimizers.base_optimizer", {"BaseOptimizer": Keras}),
    ):
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    seen = []
    others = OtherOptimizers(
        lambda optimizer: seen.append(("before", optimizer)), lambda optimizer: seen.append(("after", optimizer))
    )
    others.look()
    yield seen
    others.remove()


def test_steps_of_fastai_are_reported_with_parameters_and_states(steps):
    optimizer = Fastai()
    assert optimizer.step("closure") == "closure"
    optimizer.step()
    assert [moment for moment, _ in steps] == ["before", "after"] * 2
    assert len({id(seen) for _, seen in steps}) == 1
    assert steps[0][1].param_groups == [{"params": ["weight"]}, {"params": ["bias"]}]
    assert steps[0][1].state == {"weight": {"grad_avg": 1}}


def test_steps_of_keras_are_reported_with_parameters_and_states(steps):
    optimizer = Keras()
    optimizer.apply([1.0])
    (_, seen), _ = steps
    assert seen.param_groups == [{"params": ["kernel"]}]
    assert seen.state == {"kernel": {"momentum": 2}}


def test_a_step_that_fails_ends_too(steps):
    with pytest.raises(ValueError):  # noqa: PT011 - the program's own
        Keras().apply("bad")
    assert [moment for moment, _ in steps] == ["before", "after"]


def test_the_classes_are_as_before_after_the_recording():
    others = OtherOptimizers(lambda _: None, lambda _: None)
    original = Fastai.step
    others._wrap(Fastai, "step", lambda optimizer: optimizer)
    assert Fastai.step is not original
    others.remove()
    assert Fastai.step is original
