"""Profiles its own Python calls with cProfile while it trains; prints how often one function was called."""

import cProfile
import pstats
import time

import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())


def work():
    return sum(range(10))


def step():
    work()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


step()
profile = cProfile.Profile()
profile.enable()
for _ in range(4):
    step()
    time.sleep(0.6)
profile.disable()
print([counts[0] for (_, _, name), counts in pstats.Stats(profile).stats.items() if name == "work"])
