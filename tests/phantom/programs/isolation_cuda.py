"""Prints the driver libraries loaded and the NVIDIA device files opened while using a simulated CUDA device."""

import os
from pathlib import Path

import torch

(torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")).cpu()
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
print(
    *sorted(path for path in mapped if Path(path).name.startswith(("libcuda.", "libnvidia-ml."))),
    sep="\n",
)
print(
    *[path for name in Path("/proc/self/fd").iterdir() if "/dev/nvidia" in (path := os.path.realpath(name))], sep="\n"
)
