"""Trains a small model on a simulated CUDA device and prints a hash of all allocator events: train_cuda.py KIND."""

import hashlib
import sys

import torch
import torch.utils.checkpoint
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.into(self.norm(x)).chunk(3, -1))
        return x + self.out(
            nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )


class Checkpointed(Block):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)


class Last(nn.Module):
    def forward(self, both):
        return both[0]


def layers(kind):
    if kind == "convolutions":
        return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)), (4, 3, 32, 32)
    if kind == "lstm":
        return nn.Sequential(nn.LSTM(64, 32, 2, dropout=0.1, bidirectional=True), Last()), (20, 4, 64)
    if kind == "checkpointing":
        return nn.Sequential(*[Checkpointed(256) for _ in range(4)]), (4, 64, 256)
    return nn.Sequential(*[Block(256) for _ in range(4)]), (4, 64, 256)


kind = sys.argv[1]
is_distributed = kind in {"ddp", "fsdp2"}
if is_distributed:
    torch.distributed.init_process_group("nccl")
torch.cuda.memory._record_memory_history("all", context=None, max_entries=10**6)
model, shape = layers(kind)
model = model.cuda()
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=1)
elif kind == "fsdp2":
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # its location before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard
    for block in model:
        fully_shard(block)
    fully_shard(model)
elif kind == "compile":
    model = torch.compile(model)
scaler = torch.amp.GradScaler("cuda", enabled=kind == "amp")
optimizer = torch.optim.AdamW(model.parameters(), fused=kind == "amp")


def step_in_graph():
    """Captures one step in a CUDA graph and replays it three times."""
    x = torch.randn(*shape).cuda()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        model(x).square().mean().backward()
    for _ in range(3):
        x.copy_(torch.randn(*shape))
        graph.replay()


if kind == "graph":
    step_in_graph()
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.float16, enabled=kind == "amp"):
        loss = model(torch.randn(*shape).cuda()).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
trace = torch.cuda.memory._snapshot()["device_traces"][0]
print(
    len(trace),
    hashlib.sha256(repr([(event["action"], event["size"], event["addr"]) for event in trace]).encode()).hexdigest(),
)
if is_distributed:
    torch.distributed.destroy_process_group()
