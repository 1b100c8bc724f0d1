"""Lets another thread drop the last references to large tensors, as a thread of gloo does with the buffers of its collective, and puts
smaller ones in their place; prints address and bytes of those that were dropped, and of those that came after."""

import json
import threading

import torch


def place(tensor):
    return tensor.data_ptr(), tensor.untyped_storage().nbytes()


given = [torch.empty(100_000, dtype=torch.uint8) for _ in range(50)]
kept = [
    torch.empty(100_000, dtype=torch.uint8) for _ in range(10)
]  # so that what lies before is not given back to the system
dropped = [place(tensor) for tensor in given]
thread = threading.Thread(target=given.clear)
thread.start()
thread.join()
kept += [torch.empty(31_000, dtype=torch.uint8) for _ in range(100)]
print(json.dumps([dropped, [place(tensor) for tensor in kept]]))
