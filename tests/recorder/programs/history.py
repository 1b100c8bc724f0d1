"""Trains and writes the results, the allocator events and the lifetimes of objects: history.py OUT DEVICE MODE.

With mode ``bare``, PyTorch alone records the history; with ``none``, no events are written.
"""

import gc
import json
import random
import sys
import warnings
import weakref

import torch
from nets import MODELS, batch_for, optimizer_for
from torch.nn import functional

out, device, bare = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
torch.backends.cudnn.enabled = False
torch.manual_seed(1)
random.seed(1)
facts = {}
memory = getattr(torch, device).memory if device != "cpu" else None
if memory is not None:
    getattr(torch, device).init()
    if bare == "bare":
        memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=2_000_000)


def train(model, steps):
    optimizer = optimizer_for("adamw", model.parameters())
    for _ in range(steps):
        inputs, targets = batch_for(model, device)
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (
        loss.item(),
        weakref.ref(optimizer),
        weakref.ref(inputs),
        weakref.ref(next(iter(optimizer.state.values()))["exp_avg"]),
    )


train(MODELS["gpt"]().to(device), 1)  # the first step imports modules, which leave reference cycles
gc.collect()
gc.disable()
model = MODELS["gpt"]().to(device)
result = train(model, 3)
held = [weakref.ref(model), weakref.ref(model.head.weight), *result[1:]]
facts["loss"] = result[0]
facts["sum"] = float(sum(p.detach().double().sum() for p in model.parameters()))
del model
facts["gone at once"] = [reference() is None for reference in held]
gc.collect()
facts["gone in the end"] = [reference() is None for reference in held]
facts["grows"] = []
for _ in range(2):
    train(MODELS["resnet"]().to(device), 1)
    gc.collect()
    if memory is not None:
        facts["grows"].append(memory.memory_allocated())
facts["random"] = [random.random(), torch.rand(3).tolist(), hash(tuple(torch.get_rng_state().tolist()))]
facts["filters"] = [str(entry) for entry in warnings.filters]
facts["argv"] = [sys.argv[2], sys.path]
facts["grad mode"] = [torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()]
if memory is not None:
    entries = memory._snapshot()["device_traces"][0] if bare != "none" else []
    entries = [entry for entry in entries if entry["action"] != "snapshot"]
    streams, addresses = {}, {}  # numbered in order of first use, since the values differ in every run
    facts["events"] = [(e["action"], e["size"], streams.setdefault(e["stream"], len(streams))) for e in entries]
    facts["places"] = [addresses.setdefault(entry["addr"], len(addresses)) for entry in entries]
with open(out, "w") as file:
    json.dump(facts, file)
print("trained", facts["loss"])
