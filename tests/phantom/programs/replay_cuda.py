"""Replays recorded allocator events through torch's own CUDA allocator: replay_cuda.py GIVEN.npz OUT.npz."""

import contextlib
import ctypes
import os
import sys

import numpy as np
import torch

COUNTS = {"reserved": "reserved_bytes", "allocated": "allocated_bytes", "active": "active_bytes", "requested": "requested_bytes"}
FIELDS = ["status", "seg", "off", *COUNTS, "retries", "ooms", "device_allocs", "device_frees"]

given = np.load(sys.argv[1])
names = [str(name) for name in given["ops"]]
device = ctypes.CDLL("libcuda.so.1")
torch.cuda.init()
runtime = ctypes.CDLL(None)
streams = [torch.cuda.default_stream()]
for _ in range(int(given["stream"].max(initial=0))):
    handle = ctypes.c_void_p()
    assert runtime.cudaStreamCreateWithPriority(ctypes.byref(handle), 1, 0) == 0
    streams.append(torch.cuda.ExternalStream(handle.value))
live, pools = {}, {}
rows = {field: np.zeros(len(given["op"]), np.int64) for field in FIELDS}
begin, size, ordinal, kind = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int64(), ctypes.c_int()


def allocate(at, which, num_bytes, stream):
    with torch.cuda.stream(streams[stream]):
        tensor = torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    live[which] = tensor
    place = tensor.untyped_storage().data_ptr()
    found = [ctypes.byref(value) for value in (begin, size, ordinal, kind)]
    if place and device.memdiag_phantom_locate(ctypes.c_uint64(place), *found):
        rows["seg"][at], rows["off"][at] = ordinal.value, place - begin.value


def perform(at, op, which, num_bytes, stream):  # noqa: C901, PLR0912 - one case for each kind of event
    tensor = live.get(which)
    if op in {"free", "record_stream"} and (tensor is None or not tensor.numel()):
        live.pop(which, None) if op == "free" else None
        rows["status"][at] = 2
    elif op == "alloc":
        allocate(at, which, num_bytes, stream)
    elif op == "free":
        del live[which]
    elif op == "record_stream":
        tensor.record_stream(streams[stream])
    elif op == "empty_cache":
        torch.cuda.empty_cache()
    elif op == "complete":
        device.memdiag_phantom_complete_all() if stream < 0 else device.memdiag_phantom_complete(
            ctypes.c_void_p(streams[stream].cuda_stream)
        )
    elif op == "sync":
        torch.cuda.synchronize()
    elif op == "set_fraction":
        torch.cuda.set_per_process_memory_fraction(num_bytes / 1e9)
    elif op == "pool_begin":
        if stream >= 0:
            sys.exit("not from Python: a private pool of one stream")
        pools.setdefault(which, None)
        pools[which] = pools[which] or torch.cuda.MemPool()
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, pools[which].id)
    elif op == "pool_end":
        torch._C._cuda_endAllocateToPool(0, pools[which].id)
        torch._C._cuda_releasePool(0, pools[which].id)
    elif op == "pool_release":
        del pools[which]
    elif op == "reset_peak":
        torch.cuda.reset_peak_memory_stats()
    elif op == "external":
        device.memdiag_phantom_set_foreign(0, ctypes.c_uint64(num_bytes))
    elif op == "set_total":
        device.memdiag_phantom_set_total(ctypes.c_uint64(num_bytes))


for at, (op, which, num_bytes, stream) in enumerate(zip(*(given[name].tolist() for name in ("op", "id", "size", "stream")), strict=True)):
    rows["seg"][at] = rows["off"][at] = -1
    try:
        with contextlib.suppress(KeyError):
            perform(at, names[op], which, num_bytes, stream)
    except torch.OutOfMemoryError:
        rows["status"][at] = 1
    stats = torch._C._cuda_memoryStats(0)
    for field, name in COUNTS.items():
        rows[field][at] = stats[name]["all"]["current"]
    for field, name in {
        "retries": "num_alloc_retries",
        "ooms": "num_ooms",
        "device_allocs": "num_device_alloc",
        "device_frees": "num_device_free",
    }.items():
        rows[field][at] = stats[name]
np.savez(sys.argv[2], **rows)
sys.stdout.flush()
os._exit(0)
