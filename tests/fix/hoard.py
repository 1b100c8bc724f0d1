"""A remedy that promises much and needs more memory instead, to test that it is undone."""

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.edit import Edit

NAME = "hoard"
INSIDE = """
import torch


def hoard():
    torch.kept = torch.zeros(64 << 20, dtype=torch.uint8)
"""


def propose(case):
    tensors = case.device.tensors
    large = np.flatnonzero(tensors.requested_bytes > 1 << 20)
    yield Proposal(NAME, "Hoard memory", (), Edit(dropped=frozenset(large.tolist())), "", "none", None, "hoard")
