"""Parameters keep the names of the whole model if the program later calls a part of it directly."""

import subprocess

from memdiag.sources import load
from memdiag.trace.schema import CATEGORIES
from tests.forking import memdiag_command, python_with_torch

PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 300)), nn.Linear(300, 10))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 300)).mean().backward()
    optimizer.step()
    with torch.no_grad():
        model[0](torch.randn(64, 300))
"""


def test_parts_that_are_called_directly_have_names_within_the_model(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["record", "-q", "-o", "run", "--", python_with_torch(), "train.py"]
    subprocess.run([*memdiag_command(), *words], cwd=tmp_path, check=True, capture_output=True)
    trace = load(tmp_path / "run" / "rank0.pkl")
    tensors = trace.devices[0].tensors
    is_parameter = tensors.category == CATEGORIES.index("parameter")
    names = {trace.strings[name] for name in tensors.name[is_parameter].tolist()}
    assert {"0.0.weight", "0.1.weight", "1.weight"} <= names
    assert "0.weight" not in names
