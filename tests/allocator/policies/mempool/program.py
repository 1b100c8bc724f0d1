"""Trains a small model on a CUDA device with PyTorch's own allocator, and records its memory.

    python program.py plain FOLDER          # -> FOLDER/plain.pickle, a snapshot of the run as it is
    python program.py pools FOLDER # -> FOLDER/truth.json, the allocator's statistics with three MemPools in the program

The program opens the pools as described in docs/mempool.md. Any device works: only sizes and their order matter.
"""

import contextlib
import json
import pickle
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.cuda import memory

kind, folder = sys.argv[1], Path(sys.argv[2])
NAMES = ("weights", "optimizer", "layers")
pools = {}  # by name


def scope(name):
    if kind == "plain":
        return contextlib.nullcontext()
    if name not in pools:
        pools[name] = torch.cuda.MemPool()
    return torch.cuda.use_mem_pool(pools[name])


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1024, 3072), nn.Linear(3072, 1024)

    def forward(self, x):
        h = self.a(x)
        h = nn.functional.gelu(h)
        return x + self.b(h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])
        self.head = nn.Linear(1024, 2048)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def hooked(module):
    """Opens the pool of layers during the module's forward call."""

    def enter(_module, _args):
        opened.append(contextlib.ExitStack())
        opened[-1].enter_context(scope("layers"))

    def leave(_module, _args, _output):
        opened.pop().close()

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


def neutral(x):
    """Makes file names in the frames independent of the machine."""
    if isinstance(x, dict):
        if "filename" in x:
            x["filename"] = re.sub(
                r"^.*/(?:site-packages/|lib/python3\.\d+/|(?=program\.py$))", "/usr/lib/python3/", x["filename"]
            )
        x = x.values()
    for each in x:
        if isinstance(each, (dict, list, tuple)):
            neutral(each)


memory._record_memory_history(context="all" if kind == "plain" else None, stacks="python")
with scope("weights"):
    model = Model().cuda()
opened = []
for layer in model.layers:
    hooked(layer)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for step in range(2):
    data = torch.empty(512 * (step + 2), 1024, device="cuda")
    model(data).sum().backward()
    with scope("optimizer") if step == 0 else contextlib.nullcontext():
        optimizer.step()
    optimizer.zero_grad()
    del data
torch.cuda.synchronize()
if kind == "plain":
    snapshot = memory._snapshot()
    neutral(snapshot)
    (folder / "plain.pickle").write_bytes(pickle.dumps(snapshot, 4))
else:
    stats = torch.cuda.memory_stats()
    held = dict.fromkeys(("default", *NAMES), 0)
    of = {tuple(pool.id): name for name, pool in pools.items()}
    for segment in torch.cuda.memory_snapshot():
        held[of.get(tuple(segment["segment_pool_id"]), "default")] += segment["total_size"]
    truth = {
        "torch": torch.__version__,
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "device_allocs": stats["num_device_alloc"],
        "reserved_bytes": held,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
