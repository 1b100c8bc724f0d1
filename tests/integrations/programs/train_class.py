"""Trains with a class of hooks; arguments: style (torchtitan, verl), folder, steps to record, step that fails.

torchtitan's Trainer accumulates the gradients of several batches before the step of its optimizers. verl's trainer
updates an actor and a critic in each step, each with its own optimizer.
"""

import itertools
import sys

import torch
from model import Net, rows

from memdiag.integrations.loop import TrainingRecorder

STEPS = 8


class Trainer:
    def __init__(self, folder, steps, fail_at):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.fail_at = fail_at
        self.parts = [Net(-1).to(self.device) for _ in self.names]
        self.optimizers = [torch.optim.AdamW(part.parameters()) for part in self.parts]
        self.memory = TrainingRecorder(folder, steps=steps)

    def train(self):
        batches = itertools.cycle(torch.utils.data.DataLoader(rows(32), batch_size=4))
        self.memory.start()
        try:
            for step in range(STEPS):
                if step == self.fail_at:
                    torch.empty(1 << 50, dtype=torch.uint8, device=self.device)
                self.train_step(batches)
                self.memory.step()
        except BaseException as error:
            self.memory.failed(error)
            raise
        self.memory.finish()

    def backward(self, part, batch):
        part(batch["x"].to(self.device), batch["labels"].to(self.device))["loss"].backward()


class Torchtitan(Trainer):
    names = ("model",)

    def train_step(self, batches):
        self.optimizers[0].zero_grad()
        for batch in itertools.islice(batches, 2):
            self.backward(self.parts[0], batch)
        torch.nn.utils.clip_grad_norm_(self.parts[0].parameters(), 1.0)
        self.optimizers[0].step()


class Verl(Trainer):
    names = ("critic", "actor")

    def train_step(self, batches):
        with torch.no_grad():
            batch = next(batches)
            self.parts[1](batch["x"].to(self.device), batch["labels"].to(self.device))
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            optimizer.zero_grad()
            self.backward(part, batch)
            optimizer.step()


trainer = {"torchtitan": Torchtitan, "verl": Verl}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
trainer.train()
print("trained", trainer.memory.report.headline if trainer.memory.report else "nothing")
