"""Trains with the Trainer of transformers; arguments: folder, steps to record, step that fails or -1, how."""

import sys

from model import Net, rows
from transformers import Trainer, TrainingArguments

from memdiag.integrations.huggingface import HuggingFaceCallback, attach

folder, steps, fail_at, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
arguments = TrainingArguments(
    folder, per_device_train_batch_size=4, max_steps=8, report_to=[], save_strategy="no", disable_tqdm=True
)
trainer = Trainer(model=Net(fail_at), args=arguments, train_dataset=rows())
if how == "callback":
    trainer.add_callback(HuggingFaceCallback(steps=steps))
else:
    attach(trainer, steps=steps)
trainer.train()
print("trained", trainer.state.global_step)
