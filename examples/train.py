"""Trains a small GPT on random tokens, on the best device there is: a program to record.

    memdiag record -- python examples/train.py
    memdiag record -- python examples/train.py --layers 8 --width 512 --steps 6

Sequence lengths vary from batch to batch, as they do with real text; gradients are collected over two batches a step.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {
        "layers": 4,
        "width": 256,
        "heads": 4,
        "vocab": 8192,
        "batch": 4,
        "length": 256,
        "steps": 4,
        "accumulate": 2,
        "seed": 0,
    }
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", help="cuda, npu, cpu; left out: the best there is")
    args = parser.parse_args()
    device = args.device or (
        "cuda" if torch.cuda.is_available() else "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"
    )
    torch.manual_seed(args.seed)
    lengths = random.Random(args.seed)
    model = GPT(args.vocab, args.length, args.layers, args.width, args.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(args.steps):
        for _ in range(args.accumulate):
            length = lengths.randrange(args.length // 4, args.length + 1, 8)
            tokens = torch.randint(args.vocab, (args.batch, length + 1)).to(device)
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            (loss / args.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
