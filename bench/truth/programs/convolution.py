"""Runs a convolution of 3 x 3 once, and writes the size of its workspace, as the allocator counts it.

    python convolution.py DTYPE BATCH CHANNELS SIZE OUT

The workspace is the last request of the call: cuDNN asks for it after the output and the copies of the inputs.
"""

import json
import sys
from pathlib import Path

import torch

BLOCK = 512  # the allocator rounds sizes up to a multiple


def main() -> None:
    """Convolves, and writes OUT."""
    dtype, batch, channels, size = getattr(torch, sys.argv[1]), *map(int, sys.argv[2:5])
    images = torch.empty(batch, channels, size, size, dtype=dtype, device="cuda")
    weights = torch.empty(channels, channels, 3, 3, dtype=dtype, device="cuda")
    torch.cuda.memory._record_memory_history(context=None, stacks="python")  # noqa: SLF001 - the documented recorder
    torch.nn.functional.conv2d(images, weights, padding=1)
    entries = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001 - the documented recorder
    asked = [entry["size"] for entry in entries if entry["action"] == "alloc"]
    Path(sys.argv[5]).write_text(json.dumps({"workspace_bytes": -(-asked[-1] // BLOCK) * BLOCK}))


if __name__ == "__main__":
    main()
