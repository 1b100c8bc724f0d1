"""The scripts of ``make gpu-check``: each trains a few steps, on a card and on its phantom. gpu_check.py KIND."""

import os
import sys

KIND = sys.argv[1]
if KIND == "gpt-expandable":
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LAYERS, LENGTH, BATCH, STEPS = 8192, 512, 6, 256, 8, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x, mask=None):
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.into(self.first(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        mask = None
        if KIND == "attention-padded":
            mask = (ids != 0)[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if KIND == "gpt-checkpointing" else block(x, mask)
        return self.head(self.norm(x))


class Last(nn.Module):
    def forward(self, both):
        return both[0][-1]


def resnet():
    def block(channels, out, stride):
        return nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )

    layers = [block(channels, 2 * channels, 2) for channels in (32, 64, 128)]
    return nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)
    )


def made():
    """The model, and what makes a batch."""
    if KIND == "convolutions":
        return resnet(), lambda: torch.randn(16, 3, 128, 128)
    if KIND == "lstm":
        return nn.Sequential(nn.LSTM(256, 512, 2, dropout=0.1), Last(), nn.Linear(512, 1000)), lambda: torch.randn(
            64, 32, 256
        )
    if KIND == "transformers-llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=1376,
            num_hidden_layers=LAYERS,
            num_attention_heads=8,
        )
        return LlamaForCausalLM(config), lambda: torch.randint(1, VOCABULARY, (BATCH, LENGTH))
    return Gpt(), lambda: torch.randint(1, VOCABULARY, (BATCH, LENGTH))


def loss_of(model, batch):
    out = model(batch)
    out = out if torch.is_tensor(out) else out.logits
    return out.float().flatten(0, -2).logsumexp(-1).mean()


def wrapped(model):
    """The model in its kind of parallelism, on one rank, or compiled."""
    if KIND in {"ddp", "fsdp2"}:
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531", "RANK": "0", "WORLD_SIZE": "1"})
        torch.distributed.init_process_group("nccl")
    if KIND == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[0])
    if KIND == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    return torch.compile(model) if KIND == "gpt-compiled" else model


def in_graph(model, optimizer, batch):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        loss_of(model, batch).backward()
        optimizer.step()
    for _ in range(STEPS):
        graph.replay()


torch.manual_seed(0)
model, make = made()
model = wrapped(model.cuda())
optimizer = torch.optim.AdamW(
    model.parameters(), fused=KIND in {"gpt-fused-adam", "gpt-amp-fused"} or None, capturable=KIND == "gpt-graph"
)
dtype = {
    "gpt-bf16": torch.bfloat16,
    "transformers-llama": torch.bfloat16,
    "gpt-fp16-scaler": torch.float16,
    "gpt-amp-fused": torch.float16,
}.get(KIND)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
if KIND == "gpt-graph":
    in_graph(model, optimizer, make().cuda())
for _ in range(0 if KIND == "gpt-graph" else STEPS):
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        loss = loss_of(model, make().cuda())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
torch.cuda.synchronize()
if KIND in {"ddp", "fsdp2"}:
    torch.distributed.destroy_process_group()
