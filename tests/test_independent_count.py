"""The count of live tensors in bench/programs/live_storages.py, without memdiag, knows the kind of each tensor."""

import json
import subprocess
from pathlib import Path

from tests.forking import python_with_torch

COUNTER = Path(__file__).parents[1] / "bench" / "programs" / "live_storages.py"
FLOAT = 4
PROGRAM = """
import torch

model = torch.nn.Linear(100, 200)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.no_grad():
    model(torch.rand(3, 100))  # an action is chosen, before the batch exists
    batch = torch.rand(64, 100)
scaled = model(batch)
loss = (scaled * scaled).sum()
del scaled
loss.backward()
optimizer.step()
"""


def test_results_of_backward_are_tensors_and_a_batch_after_another_forward_is_an_input(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [python_with_torch(), str(COUNTER), "--foreach", "count.json", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = json.loads((tmp_path / "count.json").read_text())
    parts, output = found["tensors"], 64 * 200 * FLOAT
    assert parts["parameters"] == (100 * 200 + 200) * FLOAT
    assert parts["input batches"] == 64 * 100 * FLOAT
    assert output <= parts["activations"] <= output + 4 * FLOAT  # and scalars
    # autograd adds the gradients of both factors, so there are two of them and their sum
    assert 2 * output <= parts["temporary tensors"] <= 3 * output + 4 * FLOAT
    assert found["all"]["scratch memory"] == parts["scratch memory"] == 0
    assert found["has_optimizer"]
