"""Trains a parameter that belongs to no module, and a lazy module that creates its parameters at the first call."""

import sys

import torch
from torch import nn
from truth import Truth

out, device = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
truth = Truth(device)
weight = torch.randn(200, 300, device=device).requires_grad_()
model = nn.Sequential(nn.LazyLinear(150), nn.ReLU()).to(device)
optimizer = None
for step in range(3):
    inputs = torch.randn(50, 200, device=device)
    truth.step = step
    output = model(inputs @ weight) if step else model(inputs @ weight.detach())
    if optimizer is None:
        optimizer = torch.optim.SGD([weight, *model.parameters()], lr=0.01, momentum=0.9)
    (output.square().mean() + weight.square().mean()).backward()
    optimizer.step()
    truth.step = step + 1
    at = truth.moment("outside")
    named = {"parameter 0 of SGD": weight, "0.weight": model[0].weight, "0.bias": model[0].bias}
    truth.see_model(at, named)
    truth.see_model(at, named, gradients=True)
    truth.see_states(at, optimizer, named)
    optimizer.zero_grad()
truth.write(out)
