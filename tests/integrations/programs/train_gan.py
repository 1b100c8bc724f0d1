"""Trains a generator and a critic for six iterations.

Arguments: the folder, the steps of the critic per iteration, and who ends steps: no, callback or loop.
"""

import sys

import torch

from memdiag.integrations.loop import TrainingRecorder

folder, critic_steps, declares = sys.argv[1:]
generator, critic = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
generating, judging = (torch.optim.Adam(each.parameters()) for each in (generator, critic))
memory = TrainingRecorder(folder, steps=":")
memory.start(declares_steps=declares == "callback")
for _ in range(6):
    for _ in range(int(critic_steps)):
        judging.zero_grad()
        critic(generator(torch.randn(8, 64)).detach()).sum().backward()
        judging.step()
    generating.zero_grad()
    critic(generator(torch.randn(8, 64))).sum().backward()
    generating.step()
    if declares != "no":
        memory.step()
print("steps", memory._running.steps)
memory.finish()
