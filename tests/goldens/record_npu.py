"""As record.py, for torch_npu:  python record_npu.py SCENARIO FOLDER"""
import os, random, sys
import torch, torch_npu, torch.nn as nn, torch.nn.functional as F
from neutral import write
M = 1 << 20
name, out = sys.argv[1:3]
nm = torch.npu.memory
def u8(n): return torch.empty(int(n), dtype=torch.uint8, device="npu")

class Net(nn.Module):
    def __init__(self, w=256, layers=2, vocab=2048):
        super().__init__()
        self.embed = nn.Embedding(vocab, w)
        self.layers = nn.ModuleList(layer(w) for _ in range(layers))
        self.head = nn.Linear(w, vocab, bias=False)
    def forward(self, i):
        x = self.embed(i)
        for l in self.layers:
            x = x + l(x)
        return self.head(x)

def layer(w):
    return nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w))

base = {}
COUNT = ["num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams"]
BYTES = ("reserved", "allocated", "active", "requested")

def record(n=100_000):
    nm._record_memory_history("all", stacks="python", max_entries=n)
    torch.npu.reset_peak_memory_stats()
    s = torch.npu.memory_stats()
    start = {f: s.get(f + "_bytes.all.current", 0) for f in BYTES}
    base.update(counts={c: s.get(c, 0) for c in COUNT}, start=start)

def save(**more):
    s = torch.npu.memory_stats()
    snap = nm._snapshot()
    g = lambda f, w: s.get(f"{f}_bytes.all.{w}", 0)
    device = dict(
        device=0,
        start=base["start"],
        end={f: g(f, "current") for f in (*BYTES, "inactive_split")},
        peak={f: g(f, "peak") for f in (*BYTES, "inactive_split")},
        segments_end=s.get("segment.all.current", 0),
        allocations_end=s.get("allocation.all.current", 0),
        **{c: s[c] - base["counts"][c] for c in COUNT if c in s},
    )
    truth = dict(
        torch_npu=torch_npu.__version__,
        torch=torch.__version__.split("+")[0],
        conf=os.environ.get("PYTORCH_NPU_ALLOC_CONF", ""),
        task_queue=os.environ.get("TASK_QUEUE_ENABLE", ""),
        capacity=torch.npu.mem_get_info()[1],
        recorded_from_start=not any(base["start"].values()),
        devices=[device],
        **more,
    )
    write(snap, truth, out)

# Blank lines follow: the snapshots cite the lines from `def run` on by their numbers.








def run(steps, w=256):
    torch.manual_seed(0); rng = random.Random(0)
    m = Net(w=w).npu(); opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for k in range(steps):
        i = torch.zeros(8, rng.randrange(64, 513, 8), dtype=torch.long).npu()
        F.cross_entropy(m(i).flatten(0, 1), i.flatten()).backward()
        opt.step(); opt.zero_grad(set_to_none=True)
    return m, opt
def train():
    record(); keep = run(4); save()
def expandable():
    record(); keep = run(3)
    torch.npu.empty_cache()
    hold = [u8(s * M) for s in (3, 30, 70, 5)]; del hold[1]
    torch.npu.empty_cache()
    again = run(1); save()
def oom():
    record(); acts = []
    try:
        for k in range(100): acts.append(u8((7 + 3 * (k % 5)) * M))
    except Exception as e:
        text = str(e)
    os.makedirs(out, exist_ok=True)
    open(out + "/message.txt", "w").write(text + "\n")
    del acts[::2]; more = [u8(9 * M) for _ in range(3)]; save()
def workspace():
    record(); keep = run(3); save(note="operators' scratch memory is in the workspace allocator: not in reserved")
globals()[name]()
