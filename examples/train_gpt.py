#!/usr/bin/env python3
"""Trains a small GPT on batches of varying length and, if asked, records what the CUDA allocator did.

    python train_gpt.py                                # train only
    python train_gpt.py --snapshot gpt-train.pickle    # train, and save the allocator's history

The batches are random tokens: the program is about memory, not about language. Sequence lengths vary from
batch to batch, as they do with real text that is padded to the longest sample of each batch.
"""
import argparse
import pickle
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(x).split(width, dim=2))
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-2, -1)) * k.shape[-1] ** -0.5
        weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def mlp(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


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


def batches(args):
    rng = random.Random(args.seed)
    for _ in range(args.steps):
        length = rng.randrange(args.min_length, args.max_length + 1, 8)
        yield torch.randint(args.vocab, (args.batch, length + 1))


def evaluate(model, args):
    """One validation batch; the logits are kept for a report."""
    with torch.no_grad():
        tokens = torch.randint(args.vocab, (args.batch, args.max_length), device="cuda")
        return model(tokens).float().softmax(dim=-1).amax(dim=-1)


def train(args):
    torch.manual_seed(args.seed)
    model = GPT(args.vocab, args.max_length, args.layers, args.width, args.heads).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses, reports = [], []
    for step, tokens in enumerate(batches(args)):
        with record_function(f"ProfilerStep#{step}"):
            tokens = tokens.cuda(non_blocking=True)
            with record_function("forward"), torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss)
            if step % args.eval_every == args.eval_every - 1:
                with record_function("evaluate"):
                    reports.append(evaluate(model, args))
    return model, optimizer, losses, reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in dict(layers=6, width=512, heads=8, vocab=16384, batch=8, min_length=64, max_length=512,
                              steps=6, eval_every=3, seed=0, max_entries=100_000).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    parser.add_argument("--snapshot", help="record the allocator's history and save it to this file")
    args = parser.parse_args()
    if args.snapshot:
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=args.max_entries,
                                                 global_record_annotations=True)
        torch.cuda.reset_peak_memory_stats()
    state = train(args)  # kept, so that the snapshot shows the model as it is in training
    if args.snapshot:
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(None)
        with open(args.snapshot, "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
    stats = torch.cuda.memory_stats()
    print(f"{sum(p.numel() for p in state[0].parameters()) / 1e6:.1f} M parameters; peak allocated "
          f"{stats['allocated_bytes.all.peak'] >> 20} MiB, peak reserved {stats['reserved_bytes.all.peak'] >> 20} MiB")


if __name__ == "__main__":
    main()
