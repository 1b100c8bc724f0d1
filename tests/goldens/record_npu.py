"""As record.py, for torch_npu:  python record_npu.py SCENARIO FOLDER"""
import json, os, pickle, random, re, sys
import torch, torch_npu, torch.nn.functional as F
from torch import nn
M = 1 << 20
name, out = sys.argv[1:3]
nm = torch.npu.memory
def u8(n): return torch.empty(int(n), dtype=torch.uint8, device="npu")

class Net(nn.Module):
    def __init__(self, w=256, layers=2, vocab=2048):
        super().__init__()
        self.embed = nn.Embedding(vocab, w)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w)) for _ in range(layers))
        self.head = nn.Linear(w, vocab, bias=False)
    def forward(self, i):
        x = self.embed(i)
        for l in self.layers:
            x = x + l(x)
        return self.head(x)

PATHS = [(r"^.*/(?:site|dist)-packages/", "/usr/lib/python3/dist-packages/"), (r"^.*/lib/python3\.\d+/", "/usr/lib/python3/"),
         (r"^.*/(Python-3[^/]*)/", r"/usr/src/\1/"), (r"^/.*/([^/]+\.so[^/]*)$", r"/usr/lib/\1")]
paths, done = {}, set()

def neutral(x):
    """Neutralises library paths in the frames, in place, so that structure and sharing stay."""
    if id(x) in done:
        return
    done.add(id(x))
    if isinstance(x, dict):
        name = x.get("filename")
        if name is not None:
            if name not in paths:
                paths[name] = name
                for pattern, to in PATHS:
                    paths[name] = re.sub(pattern, to, paths[name])
            x["filename"] = paths[name]
        x = x.values()
    for y in x:
        if isinstance(y, (dict, list, tuple)):
            neutral(y)

base = {}
COUNT = ["num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams"]
def record(n=100_000):
    nm._record_memory_history("all", stacks="python", max_entries=n)
    torch.npu.reset_peak_memory_stats()
    s = torch.npu.memory_stats()
    base.update(counts={c: s.get(c, 0) for c in COUNT}, start={f: s.get(f + "_bytes.all.current", 0) for f in ("reserved", "allocated", "active", "requested")})
def save(**more):
    s = torch.npu.memory_stats(); snap = nm._snapshot()
    g = lambda f, w: s.get(f"{f}_bytes.all.{w}", 0)
    F5 = ("reserved", "allocated", "active", "requested", "inactive_split")
    truth = dict(torch_npu=torch_npu.__version__, torch=torch.__version__.split("+")[0], conf=os.environ.get("PYTORCH_NPU_ALLOC_CONF", ""), task_queue=os.environ.get("TASK_QUEUE_ENABLE", ""),
        capacity=torch.npu.mem_get_info()[1], recorded_from_start=not any(base["start"].values()), devices=[dict(device=0, start=base["start"], end={f: g(f, "current") for f in F5}, peak={f: g(f, "peak") for f in F5},
        segments_end=s.get("segment.all.current", 0), allocations_end=s.get("allocation.all.current", 0), **{c: s[c] - base["counts"][c] for c in COUNT if c in s})], **more)
    truth["entries"] = [len(t) for t in snap["device_traces"]]
    put(snap, truth)
def put(snap, truth):
    os.makedirs(out, exist_ok=True)
    neutral(snap)
    with open(out + "/snapshot.pickle", "wb") as f:
        pickle.dump(snap, f, protocol=4)
    n = os.path.getsize(out + "/snapshot.pickle")
    with open(out + "/truth.json", "w") as f:
        f.write(json.dumps(truth, indent=1) + "\n")
    print(f"{out}: {n} bytes, entries {[len(t) for t in snap['device_traces']]}, {len(snap['segments'])} segments, top {sorted(snap)}", flush=True)
    os._exit(0)
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
