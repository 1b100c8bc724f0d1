"""The program that bench/record.py measures: a GPT whose steps are timed; prints CPU seconds of each step as JSON.

    timed_training.py DEVICE LAYERS WIDTH LENGTH STEPS      # BARE=1: with PyTorch's own history, as a user would start
    it

Times are CPU time of the process, not wall time: the recorder adds work to this process, and other processes may keep
the machine busy.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, BATCH = 4096, 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, width // 64, 64).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        )
        return x + self.down(self.act(self.up(self.norm2(x))))


def main():
    device, (layers, width, length, steps) = sys.argv[1], map(int, sys.argv[2:6])
    torch.set_num_threads(1)
    if device == "npu":
        import torch_npu  # noqa: F401
    model = nn.Sequential(
        nn.Embedding(VOCAB, width), *(Block(width) for _ in range(layers)), nn.Linear(width, VOCAB)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    if os.environ.get("BARE"):
        memory = torch.npu.memory if device == "npu" else torch.cuda.memory
        memory._record_memory_history(max_entries=2_000_000, stacks="python")
    seconds = []
    for _ in range(steps):
        begin = time.process_time()
        tokens = torch.randint(VOCAB, (BATCH, length), device=device)
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - begin)
    print(json.dumps(seconds))
    time.sleep(0.3)  # on a simulated device, a process aborts if it ends while autograd's thread still works


if __name__ == "__main__":
    main()
