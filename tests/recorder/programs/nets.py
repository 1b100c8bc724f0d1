"""Small models and optimizers for the recorded programs, with markers inside forward and backward."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class _Mark(torch.autograd.Function):
    """Returns its input unchanged; marks one moment in forward and one in backward."""

    @staticmethod
    def forward(ctx, value, truth):
        ctx.truth = truth
        truth.moment("forward")
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        ctx.truth.moment("backward")
        return gradient, None


class Block(nn.Module):
    def __init__(self, width, mode=""):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.mode = mode

    def _inner(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, 4, width // 4).transpose(1, 2) for t in self.attention(self.norm(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)

    def forward(self, x):
        return checkpoint(self._inner, x, use_reentrant=self.mode == "reentrant") if self.mode else self._inner(x)


class GPT(nn.Module):
    inputs = "tokens"

    def __init__(self, truth=None, width=128, layers=4, mode=""):
        super().__init__()
        self.truth = truth
        self.tokens = nn.Embedding(500, width)
        self.places = nn.Embedding(64, width)
        self.layers = nn.ModuleList(Block(width, mode) for _ in range(layers))
        self.head = nn.Linear(width, 500)
        self.register_buffer("order", torch.arange(64))

    def forward(self, x):
        x = self.tokens(x) + self.places(self.order[: x.shape[1]])
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == 1 and self.truth is not None:
                x = _Mark.apply(x, self.truth)
        return self.head(x).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    inputs = "images"

    def __init__(self, truth=None):
        super().__init__()
        self.truth = truth
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(Residual(16), nn.MaxPool2d(2), Residual(16))
        self.head = nn.Linear(16, 500)

    def forward(self, x):
        x = self.body(self.stem(x))
        if self.truth is not None:
            x = _Mark.apply(x, self.truth)
        return self.head(x.mean((2, 3)))


class RNN(nn.Module):
    inputs = "tokens"

    def __init__(self, truth=None):
        super().__init__()
        self.truth = truth
        self.tokens = nn.Embedding(500, 64)
        self.lstm = nn.LSTM(64, 96, num_layers=2, batch_first=True)
        self.head = nn.Linear(96, 500)

    def forward(self, x):
        x, _ = self.lstm(self.tokens(x))
        if self.truth is not None:
            x = _Mark.apply(x, self.truth)
        return self.head(x).flatten(0, 1)


def batch_for(model, device):
    """Returns random inputs and targets for a model."""
    if model.inputs == "images":
        return torch.randn(8, 3, 16, 16, device=device), torch.randint(0, 500, (8,), device=device)
    return torch.randint(0, 500, (4, 64), device=device), torch.randint(0, 500, (4 * 64,), device=device)


class Adafactorish(torch.optim.Optimizer):
    """A simplified Adafactor, which keeps row and column means of the second moment instead of the full matrix."""

    def __init__(self, parameters, lr=1e-2):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, square = self.state[parameter], parameter.grad.square() + 1e-30
                if square.dim() < 2:
                    second = state.setdefault("exp_avg_sq", torch.zeros_like(square)).mul_(0.9).add_(square, alpha=0.1)
                else:
                    rows = square.flatten(1).mean(1)
                    columns = square.flatten(1).mean(0)
                    row = state.setdefault("exp_avg_sq_row", torch.zeros_like(rows)).mul_(0.9).add_(rows, alpha=0.1)
                    column = (
                        state.setdefault("exp_avg_sq_col", torch.zeros_like(columns)).mul_(0.9).add_(columns, alpha=0.1)
                    )
                    second = (row[:, None] * column[None] / row.mean()).view_as(square)
                parameter.add_(parameter.grad * second.rsqrt(), alpha=-group["lr"])


def optimizer_for(name, parameters):
    """Returns the optimizer with a name for these parameters."""
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-3)
    if name == "adamw-foreach":
        return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)
    if name == "adamw-fused":
        parameters = list(parameters)
        try:
            return torch.optim.AdamW(parameters, lr=1e-3, fused=True)
        except RuntimeError:  # torch 2.1 supports fused AdamW only on CUDA
            return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    return Adafactorish(parameters)


MODELS = {"gpt": GPT, "resnet": ResNet, "rnn": RNN}
