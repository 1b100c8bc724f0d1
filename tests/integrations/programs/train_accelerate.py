"""Trains with Accelerate; arguments: folder, steps to record, step that fails or -1."""

import json
import sys

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from model import Net, rows

from memdiag.integrations.accelerate import recorded

folder, steps, fail_at = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Tracker(GeneralTracker):
    name, requires_logging_directory, main_process_only = "printed", False, True

    @property
    def tracker(self):
        return self

    def store_init_configuration(self, values):
        pass

    def log(self, values, step=None, **kwargs):
        print("logged", json.dumps(values))


accelerator = Accelerator(log_with=Tracker(), project_dir=folder)
accelerator.init_trackers("test")
net = Net(fail_at)
net, optimizer, loader = accelerator.prepare(
    net, torch.optim.AdamW(net.parameters()), torch.utils.data.DataLoader(rows(32), batch_size=4)
)
with recorded(accelerator, steps=steps) as memory:
    for batch in loader:
        accelerator.backward(net(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
        memory.step()
print("trained", memory.trace_path)
