"""Allocates and frees as told, with torch_npu's own allocator: a .npz with op, id and size in, one with what happened out."""

import sys

import numpy as np
import torch
import torch_npu  # noqa: F401 - for torch.npu

ALLOC, FREE = 0, 1


def main(given, out):
    events = np.load(given)
    live, rows = {}, np.full((len(events["op"]), 4), -1, np.int64)
    for number, (op, key, size) in enumerate(zip(events["op"].tolist(), events["id"].tolist(), events["size"].tolist(), strict=True)):
        failed, address = 0, -1
        if op == ALLOC:
            try:
                live[key] = torch.empty(size, dtype=torch.uint8, device="npu")
                address = live[key].data_ptr()
            except torch.OutOfMemoryError:
                failed = 1
        elif op == FREE:
            live.pop(key, None)
        else:
            torch.npu.empty_cache()
        rows[number] = failed, address, torch.npu.memory_reserved(), torch.npu.memory_allocated()
    np.savez(out, rows=rows)


main(*sys.argv[1:])
