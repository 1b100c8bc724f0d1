"""Trains with the Trainer of Lightning; arguments: folder, steps to record, step that fails or -1."""

import logging
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from model import Net, rows

from memdiag.integrations.lightning import LightningCallback

folder, steps, fail_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
logging.getLogger("lightning.pytorch").addHandler(logging.StreamHandler())


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(fail_at)

    def training_step(self, batch, index):
        return self.net(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


trainer = Trainer(
    max_steps=8,
    accumulate_grad_batches=2,
    logger=CSVLogger(folder, name="", version=""),
    default_root_dir=folder,
    callbacks=[LightningCallback(steps=steps)],
    enable_progress_bar=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(rows(), batch_size=4))
print("trained", trainer.global_step)
