"""Prints as JSON how many unknown values memdiag counts after a program displayed some, and after it read one.

displayed.py cuda|npu
"""

import ctypes
import json
import sys

import torch

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401 - for torch.npu

ask = ctypes.CDLL(None).memdiag_phantom_facts
ask.restype = ctypes.c_char_p


def counts():
    """Returns the numbers of values and of sizes that depend on unknown values."""
    facts = json.loads(ask())
    return [facts["read_backs"]["count"], facts["assumed_sizes"]["count"]]


scores = torch.nn.Linear(64, 64).to(device)(torch.randn(8, 64).to(device))
loss = scores.sum()
displayed = [repr(scores), str(loss), f"{loss:.3f}"]
after_display = counts()
loss.item()
scores[scores > 0]
print(json.dumps({"displayed": after_display, "read": counts()}))
