"""Runs another program, and prints the sizes of its requests as JSON: public_experts.py assumed|balanced|same PROGRAM …

With "balanced" or "same", the host writes the numbers of the chosen experts, as if the device had computed them: all
experts receive as many tokens, or all tokens go to the same experts. With "assumed", they keep the values of the
device.
"""

import json
import runpy
import sys
from pathlib import Path

import torch

told, program, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = program
original = torch.topk


def topk(scores, k, dim=-1, **more):
    values, chosen = original(scores, k, dim=dim, **more)
    each = torch.arange(k) if told == "same" else torch.arange(chosen.numel()) % scores.shape[-1]
    chosen.data.copy_(each.expand(chosen.shape) if told == "same" else each.view(chosen.shape))
    return values, chosen


if told != "assumed":
    torch.topk = topk
torch.cuda.memory._record_memory_history("all", context=None, max_entries=10**6)
try:
    runpy.run_path(program, run_name="__main__")
finally:
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    Path("requests.json").write_text(json.dumps([[entry["action"], entry["size"]] for entry in trace]))
