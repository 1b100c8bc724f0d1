"""Optimizers that are not PyTorch's: their steps are reported like those of PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

from memdiag.recorder.other_optimizers import OtherOptimizers
from memdiag.sources import load
from memdiag.trace.schema import CATEGORIES
from tests.forking import memdiag_command, python_with_torch


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


KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np

model = keras.Sequential([keras.Input((300,)), keras.layers.Dense(400), keras.layers.Dense(10)])
model.compile(loss="mse", optimizer="adam")
model.fit(np.ones((40, 300)), np.ones((40, 10)), batch_size=10, epochs=1, verbose=0)
"""
FASTAI = """
import torch
from fastai.optimizer import Adam

model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 10))
optimizer = Adam(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(10, 300)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("package", "program"), [("keras", KERAS), ("fastai", FASTAI)])
def test_programs_with_the_packages_themselves(package, program, tmp_path):
    if find_spec(package) is None:
        pytest.skip(f"needs {package}, which only this test uses")
    (tmp_path / "train.py").write_text(program)
    words = [*memdiag_command(), "record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    device = load(tmp_path / "run" / "rank0.pkl").devices[0]
    assert device.events.step.max() in (3, 4)  # Keras ends the last step before its callbacks
    tensors = device.tensors
    sizes = {
        kind: int(tensors.requested_bytes[tensors.category == CATEGORIES.index(kind)].sum())
        for kind in ("parameter", "optimizer_state")
    }
    weights = 4 * (300 * 400 + 400 + 400 * 10 + 10)
    assert sizes["parameter"] >= weights
    assert 2 * weights <= sizes["optimizer_state"] <= 2.2 * weights  # Adam has two states
