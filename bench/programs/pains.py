"""Trainings that waste memory as programs of users do, with and without the mistake: pains.py NAME [--mended].

With --cpu, they are of a size for the CPU.
"""

import contextlib
import importlib
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

DEVICE = "npu" if "--npu" in sys.argv else "cpu" if "--cpu" in sys.argv else "cuda"
SHARE = 8 if DEVICE == "cpu" else 1  # by which widths, lengths and vocabularies are smaller
MENDED = "--mended" in sys.argv


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width, layers, vocabulary=32000):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, max(width // 128, 1)) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def hidden(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens):
        return self.head(self.hidden(tokens))


def model_of(width, layers, vocabulary=32000):
    with torch.device(DEVICE):
        return Model(width // SHARE, layers, vocabulary // SHARE)


def batch_of(rows, length, vocabulary=32000):
    return torch.randint(0, vocabulary // SHARE, (rows, length // SHARE), device=DEVICE)


def loss_of(model, tokens):
    return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def step(model, optimizer, rows, length):
    loss = loss_of(model, batch_of(rows, length))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def kept_losses():
    """The loss of a validation batch goes into a list, with its graph."""
    model = model_of(1024, 6)
    optimizer = torch.optim.AdamW(model.parameters())
    history = []
    for _ in range(10):
        model.eval()
        with torch.no_grad() if MENDED else contextlib.nullcontext():
            history.append(loss_of(model, batch_of(4, 1024)))
        model.train()
        step(model, optimizer, 4, 1024)


def evaluation():
    """Predictions are collected, and nobody said no_grad."""
    model = model_of(1024, 8, 16000)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for _ in range(4):
            tokens = batch_of(8, 512, 16000)
            loss_of(model, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad() if MENDED else contextlib.nullcontext():
            torch.cat([model(batch_of(16, 512, 16000)).mean(-1) for _ in range(10)])


def predictions():
    """An evaluation collects the logits of all batches under no_grad."""
    model = model_of(512, 4, 16000)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for _ in range(4):
            loss_of(model, batch_of(8, 512, 16000)).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            logits = [model(batch_of(8, 512, 16000)) for _ in range(30)] if not MENDED else ()
            found = [model(batch_of(8, 512, 16000)).argmax(-1) for _ in range(30)] if MENDED else ()
        del logits, found


def micro_batches():
    """The losses of all micro-batches are added up for one backward."""
    model = model_of(1024, 6, 8000)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        losses = []
        for _ in range(8):
            loss = loss_of(model, batch_of(4, 512, 8000)) / 8
            if MENDED:
                loss.backward()
            else:
                losses.append(loss)
        if not MENDED:
            sum(losses).backward()
        optimizer.step()
        optimizer.zero_grad()


def retained():
    """Backward retains the graph, until the next loss replaces the old one."""
    model = model_of(1024, 8, 8000)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        loss = loss_of(model, batch_of(8, 1024, 8000))
        loss.backward(retain_graph=not MENDED)
        optimizer.step()
        optimizer.zero_grad()


def cache():
    """Every embedding is remembered, by the number of its sample."""
    with torch.device(DEVICE):
        encoder = nn.Sequential(nn.Linear(4096, 8192), nn.GELU(), nn.Linear(8192, 4096))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    remembered = {}
    for number in range(30):
        x = torch.randn(8192, 4096, device=DEVICE)
        z = encoder(x)
        remembered[number] = z.detach().cpu() if MENDED else z.detach()
        functional.mse_loss(z, x).backward()
        optimizer.step()
        optimizer.zero_grad()


def first_step():
    """Forward and backward fit, the first optimizer step does not."""
    model = model_of(4096, 12)
    fused = {"fused": True} if MENDED else {}
    optimizer = torch.optim.AdamW(model.parameters(), **fused)
    for _ in range(2):
        step(model, optimizer, 1, 512)


def gradients():
    """Gradients are set to zero before the forward instead of being freed."""
    model = model_of(3072, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(4):
        optimizer.zero_grad(set_to_none=MENDED)
        loss_of(model, batch_of(4, 512)).backward()
        optimizer.step()


def checkpoint():
    """A run is resumed: the checkpoint stays on the device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        with torch.device("meta"):
            model = Model(2048, 6, 16000)
        torch.save(model.to_empty(device="cpu").state_dict(), path)
        model = model.to(DEVICE)
        state = torch.load(path, map_location="cpu" if MENDED else DEVICE)
        model.load_state_dict(state)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            loss_of(model, batch_of(4, 512, 16000)).backward()
            optimizer.step()
            optimizer.zero_grad()


def logits():
    """A large vocabulary: logits in float32, and once more, and once more."""
    vocabulary = 128256
    model = model_of(1024, 4, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def part(hidden, labels):
        return functional.cross_entropy(model.head(hidden).float(), labels, reduction="sum")

    for _ in range(3):
        tokens = batch_of(5 if DEVICE == "cpu" else 8, 2048, vocabulary)  # 16-bit products are slow on the CPU
        labels = tokens[:, 1:].flatten()
        with torch.autocast(DEVICE, torch.bfloat16):
            if MENDED:
                parts = zip(model.hidden(tokens)[:, :-1].flatten(0, 1).chunk(16), labels.chunk(16), strict=True)
                loss = sum(torch.utils.checkpoint.checkpoint(part, *each, use_reentrant=False) for each in parts) / len(
                    labels
                )
            else:
                loss = functional.cross_entropy(model(tokens).float()[:, :-1].reshape(len(labels), -1), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def lengths():
    """Batches as long as their longest text."""
    model = model_of(2048, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = (575, 1465, 560, 1821, 783, 967, 1259, 1079, 1856, 720, 1400, 330, 1111, 1990, 450, 1600)
    for length in lengths[:4] if DEVICE == "cpu" else lengths:
        with torch.autocast(DEVICE, torch.bfloat16):
            step(model, optimizer, 6, length)


def survivors():
    """Small features stay in the segments of large activations; then one large tensor is asked for."""
    with torch.device(DEVICE):
        net = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.AdaptiveAvgPool2d(16)
        )
    with torch.no_grad():
        features = [net(torch.randn(24 + 4 * (k % 5), 3, 512, 512, device=DEVICE)) for k in range(24)]
    torch.empty(8 << 30, dtype=torch.uint8, device=DEVICE)
    print(len(features))


def key_values():
    """Keys and values of every layer grow by torch.cat."""
    layers, rows, heads, width, prompt, new = 16, 16, 16, 128, 512, 80
    options = {"device": DEVICE, "dtype": torch.bfloat16}
    weights = [torch.zeros(heads * width, 3 * heads * width, **options) for _ in range(layers)]
    caches = [torch.empty(2, rows, heads, prompt + new, width, **options) if MENDED else None for _ in range(layers)]
    at, x = 0, torch.zeros(rows, prompt, heads * width, **options)
    for _ in range(new):
        length = x.shape[1]
        for k in range(layers):
            q, keys, values = (x @ weights[k]).view(rows, length, 3, heads, width).permute(2, 0, 3, 1, 4)
            both = torch.stack([keys, values])
            if MENDED:
                caches[k][:, :, :, at : at + length] = both
                past = caches[k][:, :, :, : at + length]
            else:
                caches[k] = past = both if caches[k] is None else torch.cat([caches[k], both], dim=3)
            x = functional.scaled_dot_product_attention(q, past[0], past[1]).transpose(1, 2).reshape(rows, length, -1)
        at, x = at + length, x[:, -1:]


def graphs():
    """A CUDA graph with a separate pool for each size of batch."""
    with torch.no_grad():
        layers = [layer for _ in range(6) for layer in (nn.Linear(4096, 16384), nn.GELU(), nn.Linear(16384, 4096))]
        net, pool, captured = nn.Sequential(*layers).to(DEVICE, torch.bfloat16), None, []
        sizes = (512, 1024, 2048, 4096, 8192, 16384)
        for size in reversed(sizes) if MENDED else sizes:
            x = torch.zeros(size, 4096, device=DEVICE, dtype=torch.bfloat16)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = net(x)
            pool = graph.pool() if MENDED else None
            captured.append((graph, x, y))
        net(torch.zeros(24000, 4096, device=DEVICE, dtype=torch.bfloat16))


def one_unit():
    """FSDP of the model as a whole."""
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("hccl" if DEVICE == "npu" else "nccl")
    with torch.device("meta"):
        model = Model(4096, 12)
    for block in model.blocks if MENDED else ():
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):
        step(model, optimizer, 1, 512)
    torch.distributed.destroy_process_group()


def fraction():
    """A share of the card was set once, for another program."""
    getattr(torch, DEVICE).set_per_process_memory_fraction(0.8 if MENDED else 0.25)
    model = model_of(2048, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        step(model, optimizer, 8, 1024)


if __name__ == "__main__":
    if DEVICE == "npu":
        importlib.import_module("torch_npu")
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    if DEVICE != "cpu":
        print(f"{getattr(torch, DEVICE).max_memory_allocated()} bytes")
