"""Trains a small checkpointed Llama-like model in bfloat16 on an NPU, alone, with DDP or FSDP2; prints a JSON line."""

import json
import os
import sys

import torch
import torch_npu  # noqa: F401 - for torch.npu
from torch import nn
from torch.utils.checkpoint import checkpoint

HOW = sys.argv[1] if len(sys.argv) > 1 else "alone"
WIDTH, LAYERS, WORDS = (int(word) for word in (sys.argv[2:5] or ("256", "3", "1000")))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        heads = (part.view(*x.shape[:2], 8, -1).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(
            nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        )
        return x + self.down(nn.functional.silu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


rank = int(os.environ.get("LOCAL_RANK", "0"))
torch.npu.set_device(rank)
with torch.device("npu"):
    model = Model().bfloat16()
if HOW != "alone":
    torch.distributed.init_process_group("hccl")
    torch.distributed.barrier(torch.distributed.new_group(backend="gloo"))  # ranks also talk on the host
if HOW == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
elif HOW == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    x = torch.randint(WORDS, (2, 64 + 32 * step), generator=torch.Generator().manual_seed(step)).npu()
    nn.functional.cross_entropy(model(x).view(-1, WORDS).float(), x.view(-1)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(
    json.dumps({"rank": rank, "peak": torch.npu.max_memory_allocated(), "free": torch.npu.mem_get_info()[0]}),
    flush=True,
)
if HOW != "alone":
    torch.distributed.destroy_process_group()
