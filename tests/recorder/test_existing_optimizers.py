"""The recorder knows the optimizers that exist, also those that have not made a step."""

from __future__ import annotations

import json

import memdiag

FACTS = """
import json, torch
from memdiag.recorder.optimizers import optimizers

class Wrapper(torch.optim.Optimizer):  # as in Accelerate
    def __init__(self, inner):
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

class AdamW(torch.optim.Optimizer):  # another one of the same name
    def __init__(self, parameters):
        super().__init__(parameters, {})

table = torch.nn.Embedding(10, 4, sparse=True)
layer = torch.nn.Linear(4, 4, bias=False)
gathered = torch.nn.Parameter(torch.zeros(64))
gathered._local_shard = torch.zeros(8)  # as in FSDP1
alive = [Wrapper(torch.optim.SGD([*table.parameters(), *layer.parameters()], momentum=0.9))]
alive += [torch.optim.Adam([gathered]), AdamW([torch.nn.Parameter(torch.zeros(2))])]
rows = {row["class"]: row for row in optimizers("cpu")}
keys = ("parameter_bytes", "sparse_bytes", "num_elements", "momentum")
print(json.dumps({name: [row[key] for key in keys] for name, row in rows.items()}))
"""

RARE = """
import torch
layers = [torch.nn.Linear(300, 300, bias=False) for _ in range(2)]
model = torch.nn.Sequential(*layers).to(device)
often, rare = (torch.optim.SGD(layer.parameters()) for layer in layers)
for _ in range(3):
    often.zero_grad()
    model(torch.ones(1, 300, device=device)).sum().backward()
    often.step()
"""

TWO_MODELS = """
import torch
models = [torch.nn.Linear(300, 300, bias=False).to(device) for _ in range(2)]
optimizers = [torch.optim.SGD(model.parameters()) for model in models]
for _ in range(3):
    for model, optimizer in zip(models, optimizers):
        model(torch.ones(1, 300, device=device)).sum().backward()
        optimizer.step()
"""


def test_wrappers_sparse_gradients_shards_and_other_libraries(cpu):
    run = cpu("-c", FACTS, recorded=False)
    assert json.loads(run.done.stdout) == {
        "SGD": [4 * (40 + 16), 160, 56, True],
        "Adam": [32, 0, 8, False],
        "__main__.AdamW": [8, 0, 2, False],
    }


def test_gradients_of_an_optimizer_without_a_step_are_named(accelerator):
    device = accelerator.device
    imports = "import torch_npu\n" if device == "npu" else ""
    run = accelerator("-c", f"device = {device!r}\n{imports}{RARE}")
    trace = memdiag.load(run.path(0))
    assert {"grad of 0.weight", "grad of 1.weight"} <= set(trace.strings)


def test_gradients_of_two_models_with_the_same_names_stay_apart(accelerator):
    device = accelerator.device
    imports = "import torch_npu\n" if device == "npu" else ""
    run = accelerator("-c", f"device = {device!r}\n{imports}{TWO_MODELS}")
    assert memdiag.load(run.path(0)).strings.count("grad of weight") == 2
