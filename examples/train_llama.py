"""Trains a Llama of 1.1 billion parameters on random tokens, in bfloat16 with float32 weights. May run out of memory.

    memdiag record --phantom npu:910b-64g -- python examples/train_llama.py
    memdiag record --phantom npu:910b-64g --find-max batch=1..16 -- python examples/train_llama.py --batch {batch}

Every batch is as long as its longest text, so lengths vary from batch to batch; gradients are collected over two
batches a step. The default batch is a little too large for 64 GB, which shows in the second step.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))

    def forward(self, x, turn):
        batch, length, _ = x.shape
        q = rotate(self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2), turn)
        k = rotate(self.k(x).view(batch, length, self.groups, self.size).transpose(1, 2), turn)
        v = self.v(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, groups)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, turn):
        x = x + self.attention(self.norm1(x), turn)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocab, layers, width, heads, groups, inner):
        super().__init__()
        self.size = width // heads
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        turn = turns(tokens.shape[1], self.size, tokens.device)
        for block in self.blocks:
            x = block(x, turn)
        return self.head(self.norm(x))


def turns(length, size, device):
    speed = 10_000 ** (-torch.arange(0, size, 2, device=device) / size)
    angle = torch.outer(torch.arange(length, device=device), speed).repeat(1, 2)
    return angle.cos(), angle.sin()


def rotate(x, turn):
    cos, sin = turn
    left, right = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-right, left), dim=-1) * sin.to(x.dtype)


def best_device():
    if torch.cuda.is_available():
        return "cuda"
    return "npu" if hasattr(torch, "npu") and torch.npu.is_available() else "cpu"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {
        "batch": 7,
        "length": 2048,
        "steps": 4,
        "accumulate": 2,
        "layers": 22,
        "width": 2048,
        "heads": 32,
        "groups": 4,
    }
    sizes |= {"inner": 5632, "vocab": 32_000, "seed": 0}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", help="cuda, npu, cpu; left out: the best there is")
    args = parser.parse_args()
    device = args.device or best_device()
    texts = random.Random(args.seed)
    with torch.device(device):
        model = Llama(args.vocab, args.layers, args.width, args.heads, args.groups, args.inner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(args.steps):
        for _ in range(args.accumulate):
            longest = max(texts.randrange(args.length // 4, args.length + 1, 64) for _ in range(args.batch))
            tokens = torch.randint(args.vocab, (args.batch, longest + 1)).to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            (loss / args.accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
