"""Trains in a loop with its own optimizer; arguments: folder, steps to record, step that fails, rank or 0."""

import sys

import torch
from model import Net, rows

from memdiag.integrations.loop import TrainingRecorder

folder, steps, fail_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
device = "cuda" if torch.cuda.is_available() else "cpu"
net = Net(fail_at).to(device)
with TrainingRecorder(folder, steps=steps, rank=int(sys.argv[4]) if len(sys.argv) > 4 else None) as memory:
    for batch in torch.utils.data.DataLoader(rows(32), batch_size=4):
        net(batch["x"].to(device), batch["labels"].to(device))["loss"].backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        memory.step()
print("trained", memory.report.headline if memory.report else "nothing")
