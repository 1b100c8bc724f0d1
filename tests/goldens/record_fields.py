"""Records golden snapshots with the fields that newer versions of PyTorch add, and pinned host memory:

    python record_fields.py SCENARIO FOLDER   # -> FOLDER/snapshot.pickle, FOLDER/truth.json

`fields` has notes of the program, regions of compiled code, forward frames and FX nodes. From torch 2.14 on, it also
has annotations and pinned host memory, whose statistics are in truth.json under "host"."""

import os
import sys

import torch
import torch.fx.experimental._config as fx
from neutral import neutral_text, write
from torch import nn

M = 1 << 20
name, out = sys.argv[1:3]
cm = torch.cuda.memory
HOST = torch.__version__ >= "2.14"
BYTES = ("reserved", "allocated", "active", "requested")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 2048)
        self.down = nn.Linear(2048, 512)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def fields():
    fx.enrich_profiler_metadata = True
    more = {"record_pinned_host_memory": True} if HOST else {}
    cm._record_memory_history("all", stacks="python", max_entries=100_000, compile_context=True, **more)
    pinned = [torch.empty(n, dtype=torch.uint8, pin_memory=True) for n in (1000, 5 * M, 3 * M)]
    cm._set_memory_metadata("weights")
    model = nn.Sequential(Block(), Block()).cuda()
    cm._set_memory_metadata("")
    x = torch.ones(64, 512, device="cuda", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=False):
        model(x).sum().backward()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(x).sum().backward()
    graph = torch.fx.symbolic_trace(model)
    kept = graph(x)
    if HOST:
        cm._annotate_tensor(kept, "output that the program keeps")
    del pinned[1]
    pinned.append(torch.empty(4 * M, dtype=torch.uint8, pin_memory=True))
    return kept, pinned


def host():
    cm._record_memory_history("all", stacks="python", max_entries=100_000, record_pinned_host_memory=True)
    kept = []
    for k in range(1, 7):
        batch = torch.empty(k * M + 1000, dtype=torch.uint8, pin_memory=True)
        kept.append(batch.cuda(non_blocking=True))
        if k % 2:
            kept.append(batch)
    torch.cuda.synchronize()
    return kept


def peak_and_end(stats, word="bytes.all"):
    known = [kind for kind in BYTES if f"{kind}_{word}.current" in stats]
    return [{kind: stats[f"{kind}_{word}.{which}"] for kind in known} for which in ("peak", "current")]


torch.cuda.init()
held = {"fields": fields, "host": host}[name]()
stats = torch.cuda.memory_stats()
peak, end = peak_and_end(stats)
snap = cm._snapshot(augment_with_fx_traces=True)
truth = {
    "torch": torch.__version__.split("+")[0],
    "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    "capacity": torch.cuda.get_device_properties(0).total_memory,
    "recorded_from_start": True,
    "devices": [
        {
            "device": 0,
            "start": dict.fromkeys(BYTES, 0),
            "end": end,
            "peak": peak,
            **{key: stats[key] for key in ("num_ooms", "num_alloc_retries")},
        }
    ],
}
if HOST:
    host_peak, host_end = peak_and_end(torch.cuda.host_memory_stats(), "bytes")
    truth["host"] = {"peak": host_peak, "end": host_end}
neutral_text(snap)
write(snap, truth, out)
