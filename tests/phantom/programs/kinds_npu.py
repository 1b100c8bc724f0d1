"""Trains one small model of each kind on a simulated NPU and prints the failures as JSON."""

import json

import torch
import torch_npu
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

failed = {}


def attempt(name, work):
    try:
        answer = work()
    except Exception as error:  # noqa: BLE001 - any failure is reported
        answer = f"{type(error).__name__}: {error}"[:300]
    if answer:
        failed[name] = answer


def train(model, *shape, optimizer=torch.optim.AdamW, dtype=None, scaler=None, **options):
    model = model.npu()
    optimizer = optimizer(model.parameters(), **options)
    for _ in range(2):
        with torch.autocast("npu", dtype=dtype or torch.float16, enabled=dtype is not None):
            made = model(torch.randn(*shape).npu())
            loss = (made[0] if isinstance(made, tuple) else made).float().square().mean()
        (scaler.scale(loss) if scaler else loss).backward()
        scaler.step(optimizer) if scaler else optimizer.step()
        if scaler:
            scaler.update()
        optimizer.zero_grad()
    if scaler and scaler.get_scale() != 65536:
        return f"the scale became {scaler.get_scale()}"
    return None if torch.npu.memory_allocated() else "nothing was allocated"


def layers():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))


convolutions = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 3)
)
attempt("convolutions", lambda: train(convolutions, 4, 3, 32, 32))
for recurrent in (nn.LSTM, nn.GRU, nn.RNN):
    attempt(recurrent.__name__, lambda kind=recurrent: train(kind(64, 32, 2), 20, 4, 64))
attempt("encoder", lambda: train(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4, 20, 64))
for choice in ({"foreach": True}, {"foreach": False}, {"fused": True}):
    attempt(f"AdamW {choice}", lambda choice=choice: train(layers(), 8, 64, **choice))
attempt("SGD", lambda: train(layers(), 8, 64, optimizer=torch.optim.SGD, momentum=0.9))
attempt("NpuFusedAdamW", lambda: train(layers(), 8, 64, optimizer=torch_npu.optim.NpuFusedAdamW))
for dtype in (torch.float16, torch.bfloat16):
    attempt(
        f"autocast {dtype}", lambda dtype=dtype: train(layers(), 8, 64, dtype=dtype, scaler=torch.amp.GradScaler("npu"))
    )


def attention():
    heads = torch.randn(2, 8, 256, 64).npu().bfloat16().requires_grad_()
    functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
    flat = torch.randn(256, 2, 512).npu().bfloat16().requires_grad_()
    torch_npu.npu_fusion_attention(flat, flat, flat, 8, "SBH", scale=0.1)[0].sum().backward()


def checkpointing():
    for is_reentrant in (True, False):
        checkpoint(
            layers().npu(), torch.randn(8, 64, device="npu", requires_grad=True), use_reentrant=is_reentrant
        ).sum().backward()


def streams():
    other, begin, end = torch.npu.Stream(), torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    begin.record()
    with torch.npu.stream(other):
        made = torch.randn(100, 100, device="npu") * 2
        made.record_stream(other)
    torch.npu.current_stream().wait_stream(other)
    end.record()
    end.synchronize()
    return None if begin.elapsed_time(end) >= 0 and end.query() else "time goes backwards"


def loaders():
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.arange(64))
    # Up to torch 2.6, the loader pins memory for CUDA unless the device is named.
    told = {} if tuple(map(int, torch.__version__.split(".")[:2])) > (2, 6) else {"pin_memory_device": "npu"}
    for batch, number in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True, **told):
        there = batch.npu(non_blocking=True)
        torch.npu.synchronize()
        if not batch.is_pinned() or not torch.equal(there.cpu(), batch) or not torch.equal(number.npu().cpu(), number):
            return "a batch changed on its way, or was not pinned"
    return None


for work in (attention, checkpointing, streams, loaders):
    attempt(work.__name__, work)
print(json.dumps({"failed": failed}))
