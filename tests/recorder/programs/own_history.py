"""Trains and controls the allocator's history itself, to take its own snapshots: own_history.py DEVICE WAY FILE."""

import pickle
import sys

import torch
from nets import MODELS, batch_for, optimizer_for
from torch.nn import functional

device, way, file = sys.argv[1:]
if device == "npu":
    import torch_npu  # noqa: F401
torch.backends.cudnn.enabled = False
memory = getattr(torch, device).memory


def train(steps):
    for _ in range(steps):
        inputs, targets = batch_for(model, device)
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


if way in {"start", "stop", "window"}:
    memory._record_memory_history(max_entries=50_000)
model = MODELS["gpt"]().to(device)
optimizer = optimizer_for("adamw", model.parameters())
train(2)
if way == "restart":
    memory._record_memory_history(max_entries=60_000)
if way == "clear":
    memory._record_memory_history(max_entries=60_000, clear_history=True)  # not available on an NPU
if way == "dump":
    memory._dump_snapshot(file)
if way == "stop":
    memory._dump_snapshot(file)
    memory._record_memory_history(enabled=None)
train(2)
if way == "window":  # records only some of the steps
    memory._record_memory_history(enabled=None)
    memory._record_memory_history(max_entries=70_000)
    train(1)
    memory._dump_snapshot(file)
    memory._record_memory_history(enabled=None)
    train(1)
if way in {"stop", "window"}:
    with open(file, "rb") as opened:
        print("snapshot", len(pickle.load(opened)["device_traces"][0]) > 100)
print("trained")
