"""Trains a small model of eight blocks: eight_blocks.py equal|alternating|growing|gpt|convolutions [DEVICE]."""

import sys

import torch
from torch import nn


class Block(nn.Module):
    """Keeps activations in proportion to its inner width."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """Eight blocks, with or without an embedding and a head."""

    def __init__(self, width, inners, vocabulary=0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width) if vocabulary else nn.Identity()
        self.blocks = nn.ModuleList(Block(width, inner) for inner in inners)
        self.head = nn.Linear(width, vocabulary or 8)

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Convolutions(nn.Module):
    """Eight residual blocks on images that shrink, as in a ResNet."""

    def __init__(self):
        super().__init__()
        widths = (64, 64, 128, 128, 256, 256, 512, 512)
        self.first = nn.Conv2d(3, 64, 3)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, width, 3, stride=1 + (before != width), padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            )
            for before, width in zip((64, *widths[:-1]), widths, strict=True)
        )
        self.head = nn.Linear(512, 8)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


SHAPES = {
    "equal": lambda: (Model(256, (1024,) * 8), torch.randn(8192, 256)),
    "alternating": lambda: (Model(256, (1536, 384) * 4), torch.randn(8192, 256)),
    "growing": lambda: (Model(256, range(256, 2304, 256)), torch.randn(8192, 256)),
    "gpt": lambda: (Model(256, (1024,) * 8, vocabulary=4096), torch.randint(4096, (16, 256))),
    "convolutions": lambda: (Convolutions(), torch.randn(16, 3, 64, 64)),
}


def main():
    shape, device = sys.argv[1], (sys.argv[2:] or ["cuda"])[0]
    torch.manual_seed(0)
    model, batch = SHAPES[shape]()
    model, batch = model.to(device), batch.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


if __name__ == "__main__":
    main()
