"""The program of the goldens that memdiag's recorder made, and the true values that it writes itself:

    memdiag record -o RUN -- python train.py DEVICE TRUTH.json     # this file as train.py; leaves RUN/rank0.pkl
    python train.py --golden RUN/rank0.pkl TRUTH.json FOLDER       # -> FOLDER/snapshot.pickle, FOLDER/truth.json

The program itself writes the true values: time and number of blocks allocated and freed (CUDA, NPU) at the start of
each phase; address and bytes of every parameter, gradient and optimizer state at the end; bytes counted by the
allocator."""
import json, os, pickle, re, sys, time
from pathlib import Path

if sys.argv[1] == "--golden":
    source, told, out = sys.argv[2:]
    snap = pickle.loads(Path(source).read_bytes())
    installed = "/usr/lib/python3/dist-packages/"
    PATHS = [(r"^.*/(?:site|dist)-packages/", installed), (r"^.*/lib/python3\.\d+/", "/usr/lib/python3/"),
             (r"^.*/(Python-3[^/]*)/", r"/usr/src/\1/"), (r"^.*/memdiag/recorder/", installed + "memdiag/recorder/"),
             (r"^.*/train\.py$", "/home/user/train.py"), (r"^/.*/([^/]+\.so[^/]*)$", r"/usr/lib/\1")]
    done = set()
    stacks = {}
    def neutral(x):
        """Neutralises library paths in the frames, in place; equal stacks become one list, for a small file."""
        if id(x) in done:
            return
        done.add(id(x))
        if isinstance(x, dict) and "frames" in x:
            neutral(x["frames"])
            x["frames"] = stacks.setdefault(tuple(tuple(f.values()) for f in x["frames"]), x["frames"])
        if isinstance(x, dict) and "pool_id" in x:
            x["pool_id"] = stacks.setdefault(x["pool_id"], x["pool_id"])
        if isinstance(x, dict):
            for pattern, to in PATHS if "filename" in x else ():
                x["filename"] = re.sub(pattern, to, x["filename"])
            x = x.values()
        for y in x:
            if isinstance(y, (dict, list, tuple)):
                neutral(y)
    neutral(snap["device_traces"]), neutral(snap["segments"])
    snap["memdiag"].update(argv=["python", "train.py"], pid=4242)
    truth = json.loads(Path(told).read_text())
    truth["entries"] = [len(t) for t in snap["device_traces"]]
    os.makedirs(out, exist_ok=True)
    with open(out + "/snapshot.pickle", "wb") as f:
        pickle.dump(snap, f, protocol=4)
    Path(out, "truth.json").write_text(json.dumps(truth) + "\n")
    print(f"{out}: {os.path.getsize(out + '/snapshot.pickle')} bytes, entries {truth['entries']}")
    sys.exit()

import torch, torch.nn.functional as F
from torch import nn
dev, told = sys.argv[1:3]
if dev == "npu":
    import torch_npu
torch.set_num_threads(1)
torch.manual_seed(0)
W, HEADS, VOCAB, STEPS, MICRO = 64, 4, 512, 3, 2

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(W, bias=False), nn.Linear(W, 3 * W, False), nn.Linear(W, W, False)
        self.up, self.act, self.down = nn.Linear(W, 4 * W, bias=False), nn.GELU(), nn.Linear(4 * W, W)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        a = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, W))
        return x + self.down(self.act(self.up(x)))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, W)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(W, VOCAB, bias=False)
    def forward(self, i):
        x = self.embed(i)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

stats = None if dev == "cpu" else getattr(torch, dev).memory_stats
BYTES = ("reserved", "allocated", "active", "requested")

def now():
    s = stats() if stats else {}
    allocs, frees = (s.get(f"allocation.all.{what}", -1) for what in ("allocated", "freed"))
    return dict(time_ns=time.time_ns(), allocs=allocs, frees=frees)
began = []
def begin(phase, step):
    began.append(dict(phase=phase, step=step, **now()))

model = GPT().to(dev)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=dev == "cpu")      # few temporaries: a small file
for step in range(STEPS):
    for micro in range(MICRO):
        i = torch.zeros(4, 64, dtype=torch.long).to(dev)
        begin("forward", step)
        loss = F.cross_entropy(model(i).flatten(0, 1), i.flatten())
        begin("backward", step)
        loss.backward()
        begin("outside", step)
    begin("optimizer", step)
    opt.step()
    begin("outside", step)
    if step < STEPS - 1:
        opt.zero_grad(set_to_none=True)
begin("end", STEPS)

tensors = []
def tell(name, category, tensor):
    if tensor.device.type == dev:
        storage = tensor.untyped_storage()
        tensors.append(dict(name=name, category=category, addr=storage.data_ptr(), bytes=storage.nbytes()))
for path, parameter in model.named_parameters():
    tell(path, "parameter", parameter)
    tell("grad of " + path, "gradient", parameter.grad)
    for key, value in opt.state[parameter].items():
        tell(f"{key} of {path}", "optimizer_state", value)

conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
truth = dict(torch=torch.__version__.split("+")[0], conf=conf, capacity=None, recorded_from_start=True,
             steps=STEPS, micro_batches=MICRO, began=began, tensors=tensors, devices=[])
if stats:
    s = stats()
    truth["capacity"] = getattr(torch, dev).mem_get_info()[1]
    g = lambda f, w: s.get(f"{f}_bytes.all.{w}", 0)
    counts = {c: s.get(c, 0) for c in ("num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free")}
    end, peak = ({f: g(f, what) for f in BYTES} for what in ("current", "peak"))
    truth["devices"] = [dict(device=0, start=dict.fromkeys(BYTES, 0), end=end, peak=peak, **counts)]
with open(told, "w") as f:
    json.dump(truth, f)
sys.stdout.flush()
model_kept, opt_kept = model, opt      # both stay live until the file is written, at exit
