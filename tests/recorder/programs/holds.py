"""Retains tensors of every step and writes what the recorder left behind: holds.py OUT DEVICE HOW SECONDS.

HOW is "list" (losses with their graphs), "sum" (of losses), "closure", "dict" (of outputs) or "sizes" (a dict, too).
SECONDS is the time limit of a search for holders.
"""

import json
import sys
import weakref

import torch

out, device, how, seconds = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
holding = sys.modules.get("memdiag_recorder.holding")
holding.SECONDS = holding.LAST_SECONDS = float(seconds)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history, cache, calls, total = [], {}, [], 0


def later(kept):
    def call():
        return kept.sum()

    return call


for step in range(20):
    inputs = torch.randn(128, 256, device=device)
    loss = model(inputs).pow(2).mean()
    loss.backward(retain_graph=how in ("list", "sum"))
    optimizer.step()
    optimizer.zero_grad()
    if how == "list":
        history.append(loss)
    elif how == "sum":
        total = total + loss
    elif how == "closure":
        calls.append(later(inputs * 2))
    elif how == "dict":
        cache[f"step {step}"] = model(inputs).detach()
    elif how == "sizes":
        cache[step] = torch.ones(100_000 + 1000 * step, device=device)

last = [weakref.ref(inputs), weakref.ref(optimizer)]
del inputs, optimizer
import gc  # noqa: E402

gc.collect()
with open(out, "w") as file:
    json.dump({"freed": [each() is None for each in last]}, file)
