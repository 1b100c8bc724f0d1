"""A small model, and a step that can fail for want of memory."""

import torch

WIDTH = 256
HUGE = {"cpu": 1 << 44, "cuda": 100 << 30}  # bytes that a device does not have


class Net(torch.nn.Module):
    def __init__(self, fail_at=-1):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
        self.fail_at, self.calls = fail_at, 0

    def forward(self, x, labels=None):
        if self.calls == self.fail_at:
            torch.empty(HUGE[x.device.type], dtype=torch.uint8, device=x.device)
        self.calls += 1
        out = self.layers(x)
        return {"loss": out.square().mean() if labels is None else (out - labels).square().mean(), "logits": out}


def rows(count=64):
    return [{"x": torch.ones(WIDTH), "labels": torch.ones(1)} for _ in range(count)]
