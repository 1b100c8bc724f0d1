"""Computes masks on a simulated device, and prints as JSON which threads that needed.

one_thread.py cuda|npu
"""

import json
import sys
from pathlib import Path

import torch

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401 - for torch.npu


def threads():
    return len(list(Path("/proc/self/task").iterdir()))


torch.set_num_threads(3)
rows = torch.zeros(200_000, dtype=torch.int32, device=device)  # enough for the CPU to use all threads
count = int((rows < 1).sum())
before = threads()
for _ in range(3):
    count = int((rows + 1 < 2).sum())
after = threads()
(torch.zeros(200_000, dtype=torch.int32) < 1).sum()
print(
    json.dumps(
        {"count": count, "started": after - before, "num_threads": torch.get_num_threads(), "cpu": threads() - after}
    )
)
