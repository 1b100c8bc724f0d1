"""Trains until a file appears and writes a line per step. At the end, it lists the traces of a watcher.

python train.py DEVICE FOLDER [history] writes the loss of each step to FOLDER/steps, with the processor time so far of
the process and of its main thread. It writes hooks, threads and modules of a watcher to FOLDER/left.
"""

import json
import os
import sys
import threading
import time

import torch

device, folder = sys.argv[1], sys.argv[2]


def _is_ours(module):
    """Returns whether a module belongs to memdiag; those of the simulated device stay."""
    return "memdiag" in module and "phantom" not in module


def state():
    """Returns everything that a watcher might leave behind."""
    modules, optimizer = torch.nn.modules.module, sys.modules["torch.optim.optimizer"]
    history = torch.cuda.memory._record_memory_history
    return {
        "hooks": [
            len(hooks)
            for hooks in (
                modules._global_forward_pre_hooks,
                modules._global_forward_hooks,
                optimizer._global_optimizer_pre_hooks,
                optimizer._global_optimizer_post_hooks,
            )
        ],
        "wrapped": hasattr(torch.autograd.backward, "__wrapped__") or history.__module__ != "torch.cuda.memory",
        "modules": sorted(name for name in sys.modules if "memdiag_watch" in name),
        "threads": sorted(thread.name for thread in threading.enumerate() if "memdiag-watch" in thread.name),
        "finders": [type(finder).__name__ for finder in sys.meta_path if _is_ours(type(finder).__module__)],
        "profile": sys.getprofile() is not None,
        "profiler": torch._C._autograd._profiler_enabled(),
        "events": len(torch.cuda.memory._snapshot()["device_traces"][0]) if device == "cuda" else 0,
        "names": sorted(name for name in sys.modules["__main__"].__dict__ if "memdiag" in name),
    }


if "history" in sys.argv:
    torch.cuda.memory._record_memory_history(max_entries=100_000)
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
kept = []
with open(os.path.join(folder, "steps"), "w") as steps:
    while not os.path.exists(os.path.join(folder, "stop")):
        loss = model(torch.randn(32, 64).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if os.path.exists(os.path.join(folder, "leak")):
            kept.append(torch.empty(1 << 18, device=device))
        steps.write(f"{loss.item()} {time.process_time()} {time.thread_time()}\n")
        steps.flush()
        time.sleep(0.001)
while any("memdiag-watch" in thread.name for thread in threading.enumerate()):
    time.sleep(0.01)
with open(os.path.join(folder, "left"), "w") as left:
    json.dump(state(), left)
