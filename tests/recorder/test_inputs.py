"""Tensors that a model is called with are inputs, unless another model or the program computed them."""

import subprocess

import pytest

from memdiag.sources import load
from memdiag.trace.schema import CATEGORIES
from tests.forking import memdiag_command, python_with_torch

PROGRAM = """
import torch

model, criterion = torch.nn.Linear(1000, 3000), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    batch, target = torch.rand(64, 1000) + 1, torch.rand(64, 3000) + 1
    made = model(batch)
    criterion(made, target).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


# Like deep Q-learning: targets are computed from the output of one model, before another one is called.
TARGETS = """
import torch

model, frozen = torch.nn.Linear(1000, 300), torch.nn.Linear(1000, 300)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    batch, reward = torch.rand(64, 1000), torch.rand(64, 301)
    with torch.no_grad():
        made = frozen(batch)
        scaled = made.repeat(1, 5).clamp(0, 1)
    other = torch.rand(64, 302)
    loss = model(batch)[:, :200].mul(2).sin().mean()
    (loss + model(batch).mean()).backward()
    optimizer.step()
"""

# Gradients of each sample, computed in parts that are joined, and one after the other.
SAMPLES = """
import torch
from torch.func import functional_call, grad, vmap

model = torch.nn.Linear(100, 30)

def error(weights, row, target):
    return (functional_call(model, weights, (row[None],)) - target[None, :30]).square().mean()

for _ in range(3):
    batch, target = torch.rand(16, 100), torch.rand(16, 31)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    joined = vmap(grad(error), in_dims=(None, 0, 0), chunk_size=4)(weights, batch, target)
    pairs = [torch.autograd.grad(model(row).mean(), model.weight)[0] for row in batch[:5]]
    stacked = torch.stack(pairs)
    del pairs
    with torch.no_grad():
        model.weight -= joined["weight"].mean(0) + stacked.mean(0)
"""


def kinds(folder, program):
    """Records a program; returns the names of the categories by number of elements."""
    (folder / "train.py").write_text(program)
    words = ["record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run([*memdiag_command(), *words], cwd=folder, check=True, capture_output=True)
    tensors = load(folder / "run" / "rank0.pkl").devices[0].tensors
    found = {}
    for size, category in zip(tensors.requested_bytes.tolist(), tensors.category.tolist(), strict=True):
        found.setdefault(size // 4, []).append(CATEGORIES[category])
    return found


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    return kinds(tmp_path_factory.mktemp("targets"), TARGETS)


def test_a_batch_is_an_input_also_if_the_model_does_not_get_it(computed):
    assert computed[64 * 301][1:] == ["input"] * 3  # the first one is allocated before the training begins


def test_tensors_computed_from_the_output_of_a_model_are_no_inputs(computed):
    assert set(computed[64 * 1500]) <= {"unknown", "temporary"}, computed[64 * 1500]
    assert set(computed[64 * 302]) == {"unknown"}


def test_tensors_computed_between_two_forwards_and_freed_in_backward_are_activations(computed):
    assert computed[64 * 200].count("activation") == 4, computed[64 * 200]


def test_the_output_of_a_model_is_no_input_of_the_criterion(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run([*memdiag_command(), *words], cwd=tmp_path, check=True, capture_output=True)
    trace = load(tmp_path / "run" / "rank0.pkl")
    tensors = trace.devices[0].tensors
    results = tensors.requested_bytes == 64 * 3000 * 4  # of the model, and the targets
    found = [CATEGORIES[category] for category in tensors.category[results].tolist()]
    assert found.count("input") == 3, found  # the target of each step
    assert "input of Linear" in trace.strings


def test_joined_gradients_of_samples_are_no_inputs(tmp_path):
    found = kinds(tmp_path, SAMPLES)
    for size in (16 * 30 * 100, 5 * 30 * 100):
        assert len(found[size]) == 3
        assert "input" not in found[size]
    assert found[16 * 31] == ["input"] * 3  # the first one, older than the first forward, is of the same call site
