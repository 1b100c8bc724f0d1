"""Frees large tensors in another thread, as gloo does with the buffers of a collective, then allocates smaller ones.

Prints address and bytes of the freed tensors and of those that are live at the end."""

import json
import threading

import torch


def place(tensor):
    return tensor.data_ptr(), tensor.untyped_storage().nbytes()


given = [torch.empty(100_000, dtype=torch.uint8) for _ in range(50)]
# The C library keeps the freed memory below these tensors instead of returning it to the system.
kept = [torch.empty(100_000, dtype=torch.uint8) for _ in range(10)]
dropped = [place(tensor) for tensor in given]
thread = threading.Thread(target=given.clear)
thread.start()
thread.join()
kept += [torch.empty(31_000, dtype=torch.uint8) for _ in range(100)]
print(json.dumps([dropped, [place(tensor) for tensor in kept]]))
