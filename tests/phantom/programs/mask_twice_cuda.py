"""Selects rows by the same mask three times; the host wrote the mask, so the number of selected rows is known."""

import torch

mask = (torch.arange(5000) < 3000).cuda()
rows = torch.ones(5000, 7, device="cuda")
print([len(rows[mask]), len(rows[mask]), len(mask.nonzero())])
