"""Selects by a mask that the host wrote, so the number of selected elements is known: mask_twice.py cuda|npu."""

import sys

import torch

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401

mask = (torch.arange(5000) < 3000).to(device)
rows = torch.ones(5000, 7, device=device)
numbers = torch.arange(5000, device=device)
print([len(rows[mask]), len(rows[mask]), len(mask.nonzero()), len(numbers.masked_select(mask))])
