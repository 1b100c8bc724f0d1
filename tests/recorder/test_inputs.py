"""Tensors that a model is called with are inputs, unless another model made them."""

import subprocess

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
