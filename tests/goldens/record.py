"""Records one golden snapshot of the CUDA caching allocator, together with the allocator's own statistics:

    python record.py SCENARIO FOLDER          # -> FOLDER/snapshot.pickle, FOLDER/truth.json

README.md has the settings of each scenario (PYTORCH_CUDA_ALLOC_CONF, device memory, devices). The events of `streams`
must complete only on request, as in the simulated CUDA runtime. The other scenarios run on any device with enough
memory, but with other addresses."""
import ctypes, os, random, re, sys
import torch, torch.nn.functional as F
from torch import nn
from neutral import write
M = 1 << 20
name, out = sys.argv[1:3]
torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
cm = torch.cuda.memory
def u8(n, device="cuda"):
    return torch.empty(int(n), dtype=torch.uint8, device=device)

base = {}
COUNT = ["num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams"]
BYTES = ("reserved", "allocated", "active", "requested")

def record(stacks="python", n=100_000, **k):
    cm._record_memory_history("all", stacks=stacks, max_entries=n, **k)
    mark()

def mark():
    """Resets peaks and counters."""
    for d in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(d)
        s = torch.cuda.memory_stats(d)
        start = {f: s.get(f + "_bytes.all.current", 0) for f in BYTES}
        base[d] = {c: s.get(c, 0) for c in COUNT} | {"start": start}

def save(**more):
    whole = not any(v for b in base.values() for v in b["start"].values()) if base else None
    truth = dict(
        torch=torch.__version__.split("+")[0],
        conf=os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        capacity=int(os.environ.get("FAKE_CUDA_TOTAL_BYTES", 80 << 30)),
        recorded_from_start=whole,
        devices=[],
    )
    stats = [torch.cuda.memory_stats(d) for d in range(torch.cuda.device_count())]
    snap = cm._snapshot()
    for d, s in enumerate(stats):
        b = base.get(d, {})
        g = lambda f, w: s.get(f"{f}_bytes.all.{w}", 0)
        truth["devices"].append(dict(
            device=d,
            start=b.get("start"),
            end={f: g(f, "current") for f in (*BYTES, "inactive_split")},
            peak={f: g(f, "peak") for f in (*BYTES, "inactive_split")} if base else None,
            segments_end=s.get("segment.all.current", 0),
            allocations_end=s.get("allocation.all.current", 0),
            **{c: s.get(c, 0) - b.get(c, 0) for c in COUNT if c in s},
        ))
    truth.update(more)
    write(snap, truth, out)

# Blank lines follow: the snapshots cite the lines from `class Net` on by their numbers.















def layer(w):
    return nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w))

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

class Run:
    def __init__(self, device="cuda", seed=0, **k):
        torch.manual_seed(seed); self.rng = random.Random(seed); self.device = device
        self.model = Net(**k).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
    def step(self, length=None, batch=8):
        n = length or self.rng.randrange(64, 513, 8)
        i = torch.zeros(batch, n, dtype=torch.long).to(self.device)
        loss = F.cross_entropy(self.model(i).flatten(0, 1), i.flatten())
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        return loss.detach()

def train():
    record(global_record_annotations=True) if torch.__version__ >= "2.9" else record()
    r = Run()
    for k in range(4):
        with torch.profiler.record_function(f"ProfilerStep#{k}"):
            r.step()
    save()

def expandable():
    record()
    r = Run()
    for k in range(3):
        r.step()
    torch.cuda.empty_cache()          # unmaps
    hold = [u8(s * M) for s in (3, 30, 70, 5)]
    del hold[1]
    torch.cuda.empty_cache()          # unmaps a hole in the middle
    for k in range(2):
        r.step()                      # grows again
    keep = u8(90 * M)
    save()

def oom():
    record()
    acts = []
    text = None
    try:
        for k in range(100):
            acts.append(u8((7 + 3 * (k % 5)) * M))
    except torch.OutOfMemoryError as e:
        text = str(e)
    del acts[::2]                     # the program handles the failure: it frees half and continues
    more = [u8(9 * M) for _ in range(3)]
    os.makedirs(out, exist_ok=True)
    text = re.sub(r"[Pp]rocess \d+", "Process 4242", text)
    open(out + "/message.txt", "w").write(text + "\n")
    save()

def oom_dump():
    """An out-of-memory observer takes the snapshot at the failed allocation."""
    record()
    def observer(device, alloc, total, free):
        save(observer=dict(device=device, alloc=alloc, device_total=total, device_free=free))
    torch._C._cuda_attach_out_of_memory_observer(observer)
    r = Run()
    acts = [r.step() for _ in range(2)]
    while True:
        acts.append(torch.zeros(8, 512, 2048, device="cuda"))

def ring_run(mid):
    """Makes two equal runs: the first keeps all entries and counts those after the mark; the second keeps only those.

    With ``mid``, it keeps one entry more: an alloc whose segment_alloc has been dropped."""
    n = int(os.environ.get("RING_N", 0))
    cm._record_memory_history("all", stacks="python", max_entries=n or 100_000)
    r = Run()
    held = []
    for k in range(3):
        r.step()
        held.append(u8((k + 1) * 300_000))
    if mid:
        held.append(u8(200 * M))              # needs a new segment
    mark()
    if not n:
        before = len(cm._snapshot()["device_traces"][0])
    r.step()
    held.append(u8(300 * M)); del held[1]
    if not n:
        after = len(cm._snapshot()["device_traces"][0]) - before - 1     # 1: the entry of the first snapshot
        if mid:
            after += 1
        os.environ["RING_N"] = str(after); sys.stdout.flush()
        os.execv(sys.executable, [sys.executable] + sys.argv)
    save(max_entries=n, note=f"the start is that {'after' if mid else 'before'} the first kept entry")

def ring():
    ring_run(False)

def ring_mid_malloc():
    ring_run(True)

def streams():
    """Uses FAKE_CUDA_EVENTS=manual: events complete only on request."""
    record()
    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()
    held = []
    for k in range(12):
        a = u8((4 + k) * M)
        with torch.cuda.stream(s1):
            b = u8((2 + k) * M)
        a.record_stream(s1)
        if k % 3 == 0:
            a.record_stream(s2)
        b.record_stream(torch.cuda.default_stream())
        if k % 4 == 3:
            held.append(b)
        del a, b                      # the frees wait for their events
        if k == 5:
            ctypes.CDLL(None).fakecuda_complete_all()
    save(pending_frees_at_end=True)

def pools():
    record()
    p, q = torch.cuda.MemPool(), torch.cuda.MemPool()
    outside = [u8(3 * M), u8(30 * M)]
    with torch.cuda.use_mem_pool(p):
        inside = [u8(5 * M), u8(400_000), u8(25 * M)]
    with torch.cuda.use_mem_pool(q):
        t = u8(12 * M)
        with torch.cuda.use_mem_pool(p):
            inside.append(u8(7 * M))
        inside.append(u8(2 * M))
    del t, inside[2]
    outside.append(u8(6 * M))
    save(pool_ids=[list(p.id), list(q.id)])

def graphs():
    record()
    x = torch.zeros(4 * M, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x + 1
        z = (y * 2).relu()
        w = z.exp()
    g.replay()
    h = x * 3
    save()

def two_devices():
    record()
    a, b = Run("cuda:0", w=128), Run("cuda:1", seed=1, w=256)
    for k in range(2):
        a.step(); b.step()
    moved = u8(5 * M, "cuda:0").to("cuda:1")
    save()

def max_split():
    record()
    rng = random.Random(3)
    held = []
    for k in range(60):
        held.append(u8(rng.choice([20, 60, 150, 190, 200, 210, 260, 330, 500]) * M + rng.randrange(3) * 700_000))
        if len(held) > 9:
            held.pop(rng.randrange(len(held)))
    save()

def roundup():
    record()
    rng = random.Random(4)
    held = []
    for k in range(80):
        held.append(u8(2 ** rng.uniform(9, 28)))
        if len(held) > 12:
            held.pop(rng.randrange(len(held)))
    save()

def gc_threshold():
    torch.cuda.set_per_process_memory_fraction(0.5)
    record()
    rng = random.Random(5)
    held = []
    for k in range(120):
        held.append(u8(rng.choice([12, 24, 36, 50, 64, 90, 128]) * M + rng.randrange(4) * 3 * M))
        if len(held) > 8:
            held.pop(rng.randrange(len(held)))
    save(fraction=0.5)

def late():
    r = Run()
    old = [u8(s) for s in (3 * M, 700, 500_000, 40 * M, 9 * M)]
    for k in range(2):
        r.step(400)
    del old[1], old[2]
    record()
    for k in range(2):
        r.step()
    del old[0]
    save(note="recording began on a used allocator")

def no_trace():
    r = Run()
    held = [u8(s) for s in (3 * M, 700, 500_000, 40 * M, 9 * M)]
    r.step(400)
    save(note="never recorded: peaks are not known from the file")

def state_only():
    cm._record_memory_history("state", stacks="python"); mark()
    r = Run()
    r.step(400)
    save(note="_record_memory_history('state'): stacks of live blocks only, trace of one entry")

def empty():
    torch.cuda.init()
    record()
    save()

def cpp_frames():
    record(stacks="all")
    m = nn.Linear(512, 512).cuda()
    x = torch.zeros(64, 512, device="cuda")
    m(x).relu().sum().backward()
    save()

def retries():
    """Fills the cache repeatedly with blocks of unsuitable sizes."""
    record()
    rng = random.Random(6)
    for k in range(10):
        size = (11 + 14 * k % 90) * M
        held = [u8(size) for _ in range(max(1, (640 * M) // size - 1))]
        del held
    last = [u8(33 * M), u8(400_000)]
    save()

def leak():
    """Retains one more tensor in every step."""
    record(global_record_annotations=True)
    r = Run(w=128, layers=0, vocab=512)
    history = []
    for k in range(20):
        with torch.profiler.record_function(f"ProfilerStep#{k}"):
            r.step(128)
            history.append(torch.zeros(300_000, device="cuda"))     # the leak: 1.2 MB a step
    save(leak=dict(bytes_per_step=1_200_000, steps=20, function="leak"))

def pinned():
    """Leaves small live tensors, each alone in a large segment."""
    record()
    keep, filler = [], []
    for k in range(12):
        keep.append(u8(1_200_000 + 4096 * k))     # reserves a 20 MiB segment, in which it is the only tensor that stays
        filler.append(u8(18 * M))                 # fills the remainder, so that the next request needs another segment
    del filler
    one = u8(60 * M)                              # fits none of the holes
    save(survivors=12)

globals()[name]()
