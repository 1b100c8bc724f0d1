"""Runs autocast over many layers whose weights are at random host addresses: autocast_ends.py DEVICE."""

import random
import sys

import torch

device = sys.argv[1]
if device == "npu":
    import torch_npu  # noqa: F401

between, layers = [], []
for _ in range(40):
    between += [bytearray(random.randrange(16, 4096)) for _ in range(random.randrange(20))]  # not seeded
    layers.append(torch.nn.Linear(64, 64, device=device))
model = torch.nn.Sequential(*layers)
for _ in range(2):
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        model(torch.zeros(8, 64, device=device))
    with torch.autocast(device, torch.bfloat16):
        loss = model(torch.zeros(8, 64, device=device)).float().sum()
    loss.backward()
print(sum(map(len, between)))
