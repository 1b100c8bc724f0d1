"""Trains a GPT on a device, after running the file named by MEMDIAG_TEST_SNIPPET with the model.

Prints how many bytes the snippet copied to the host.
"""

import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path

import torch
from torch.nn import functional

DEVICE = sys.argv[1]
if DEVICE == "npu":
    import torch_npu  # noqa: F401 - registers the device

path = Path(__file__).parents[3] / "examples" / "train.py"
spec = importlib.util.spec_from_file_location("train", path)
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)

model = train.GPT(512, 128, 8, 128, 4).to(DEVICE)
copied = [0]
if "MEMDIAG_TEST_SNIPPET" in os.environ:
    plain = torch.Tensor.copy_

    def counted(self, source, *arguments, **options):
        if self.dtype == torch.uint8 and self.device.type == "cpu" and source.device.type == DEVICE:
            copied[0] += source.numel() * source.element_size()
        return plain(self, source, *arguments, **options)

    torch.Tensor.copy_ = counted
    runpy.run_path(os.environ["MEMDIAG_TEST_SNIPPET"], {"model": model})

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for _ in range(3):
    tokens = torch.randint(512, (16, 129)).to(DEVICE)
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps({"copied": copied[0]}))
