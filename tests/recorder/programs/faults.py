"""Trains, and raises and catches its own errors in forward, in backward and in hooks."""

import sys

import torch
from nets import GPT, batch_for
from torch.nn import functional
from truth import Truth

out, device = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
truth = Truth(device)
failing = ""


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        if failing == "forward":
            raise ValueError("in forward")
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        if failing == "backward":
            raise ValueError("in backward")
        return gradient


class Part(torch.nn.Module):
    def forward(self, x):
        truth.moment("forward")
        return Fails.apply(x)


class Model(GPT):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return super().forward(x) + self.part(torch.zeros(1, device=device, requires_grad=True))


def fails_before(module, args):
    if failing == "hook":
        raise ValueError("in a hook")


def fails_step(optimizer, args, kwargs):
    if failing == "step":
        raise ValueError("before the step")


model = Model().to(device)
named = dict(model.named_parameters())
model.layers[1].mlp.register_forward_pre_hook(fails_before)
optimizer = torch.optim.AdamW(model.parameters())
optimizer.register_step_pre_hook(fails_step)
done = 0
for failing in ("", "forward", "", "backward", "hook", "step", "", "loss", ""):
    inputs, targets = batch_for(model, device)
    truth.moment()
    truth.step = done
    try:
        loss = functional.cross_entropy(model(inputs), targets)
        if failing == "loss":
            raise ValueError("after forward")
        loss.backward()
        optimizer.step()
        done += 1
        truth.step = done
    except ValueError as error:
        print(error)
    at = truth.moment("outside" if failing in {"", "loss"} else "")
    truth.see_model(at, named)
    optimizer.zero_grad(set_to_none=True)
    if failing == "backward":
        torch.autograd.set_detect_anomaly(False)
truth.write(out)
