"""Trains until it runs out of memory in forward or backward; with ``caught``, it catches the error and continues."""

import sys

import torch
from nets import GPT, batch_for
from torch.nn import functional
from truth import Truth

out, device, where = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401

truth = Truth(device)
total = getattr(torch, device).get_device_properties(0).total_memory


class Grows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        if truth.step == 2 and where == "forward":
            torch.empty(total, dtype=torch.uint8, device=device)
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        if truth.step == 2 and where != "forward":
            torch.empty(total, dtype=torch.uint8, device=device)
        return gradient


class Model(GPT):
    def forward(self, x):
        return super().forward(x) * 1 if where == "none" else Grows.apply(super().forward(x))


model = Model().to(device)
named = dict(model.named_parameters())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    inputs, targets = batch_for(model, device)
    at = truth.moment()
    truth.see(at, inputs, "input")
    truth.see_model(at, named)
    truth.see_states(at, optimizer, named)
    truth.step = step
    truth.write(out, total=total)
    try:
        functional.cross_entropy(model(inputs), targets).backward()
    except torch.OutOfMemoryError:
        if where != "caught":
            raise
        optimizer.zero_grad()
        truth.step = -2
        continue
    optimizer.step()
    optimizer.zero_grad()
truth.moment("outside")
truth.write(out, total=total)
