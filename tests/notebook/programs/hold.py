"""Holds tensors in every way that Python has, and prints who memdiag says holds them; see test_live.py."""

import json
import weakref

import torch

import memdiag


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(100, 100)
        self.register_buffer("mask", torch.zeros(90, 100))

    def forward(self, x):
        return self.fc(x)


class Tracker:
    def __init__(self):
        self.history = {"loss": []}


def closure():
    captured = torch.ones(110, 100)
    return lambda: captured


def fails():
    held = torch.ones(120, 100)
    raise RuntimeError(len(held))


def generator():
    waiting = torch.ones(130, 100)
    yield 1
    del waiting


net = Net()
optimizer = torch.optim.AdamW(net.parameters())
net(torch.ones(1, 100)).sum().backward()
optimizer.step()
tracker = Tracker()
hook = closure()
iterator = generator()
next(iterator)
leaked = []
try:
    fails()
except RuntimeError as error:
    kept = error


def main():
    local = torch.ones(140, 100)
    pair = [torch.ones(150, 100)]
    tracker.history["loss"].append((torch.ones(160, 100, requires_grad=True) * 2).sum())
    chain = torch.ones(180, 100, requires_grad=True).exp().exp().sum()
    deep = torch.nn.Linear(100, 190, bias=False)
    for _ in range(4):
        deep = torch.nn.Sequential(deep)
    deep(torch.ones(1, 100)).sum().backward()
    first = memdiag.live(top=40, seconds=60)
    leaked.extend(torch.ones(170, 100) for _ in range(3))
    grown = memdiag.live(seconds=60, growing=True)
    timed = memdiag.live(seconds=0)
    reference = weakref.ref(local)
    del local
    print(
        json.dumps(
            {
                "first": {str(each.shape[0]) if len(each.shape) > 1 else "": each.holders for each in first.tensors},
                "all": [holder for each in first.tensors for holder in each.holders],
                "grown": [each.holders for each in grown.tensors],
                "is_complete": [first.is_complete, timed.is_complete],
                "freed": reference() is None,
                "text": str(first),
                "html": first._repr_html_(),
                "pair": len(pair) + chain.dim() + len(deep),
            }
        )
    )


main()
