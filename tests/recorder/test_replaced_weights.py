"""Tensors that a program makes the memory of its parameters (``p.data = …``) are parameters, too."""

import subprocess

import numpy as np

from memdiag.sources import load
from memdiag.trace.schema import CATEGORIES
from tests.forking import memdiag_command, python_with_torch

PROGRAM = """
import torch
model = torch.nn.Linear(300, 200)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 300)).mean().backward()
    kept = [parameter.data.clone() for parameter in model.parameters()]
    for parameter, data in zip(model.parameters(), kept):
        parameter.data = data
    optimizer.step()
"""


def test_memory_that_replaces_that_of_a_parameter_has_its_name(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run([*memdiag_command(), *words], cwd=tmp_path, check=True, capture_output=True)
    trace = load(tmp_path / "run" / "rank0.pkl")
    tensors = trace.devices[0].tensors
    is_weight = tensors.name == trace.strings.index("weight")
    assert np.flatnonzero(is_weight & (tensors.category == CATEGORIES.index("parameter"))).size == 4
