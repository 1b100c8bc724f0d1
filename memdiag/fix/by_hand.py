"""Remedies that only the program itself can apply, for programs that do not fit with the others."""

from __future__ import annotations

from memdiag.fix.base import Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.structure import few
from memdiag.offload.passes import BACKWARD
from memdiag.text import phrase

ACCUMULATION = "gradient-accumulation"
_SWITCHES = (
    (
        "/transformers/trainer.py",
        "TrainingArguments(per_device_train_batch_size=N // 2, gradient_accumulation_steps=2)",
    ),
    ("/lightning/pytorch/", "Trainer(accumulate_grad_batches=2)  # with half the batch size"),
    ("/pytorch_lightning/", "Trainer(accumulate_grad_batches=2)  # with half the batch size"),
)
_PLAIN = "(loss / 2).backward()  # with half the batch; optimizer.step() after every second batch"


def by_hand(case: FixCase) -> list[Refusal]:
    """Returns the remedies that memdiag does not apply to a program, with the reason and the change to make by hand."""
    if not (case.passes.phase == BACKWARD).any():
        return []
    files = {frame.filename.replace("\\", "/") for frame in case.trace.stacks.frames}
    switch = next((line for part, line in _SWITCHES if any(part in file for file in files)), _PLAIN)
    recorded = case.trace.recorded
    line = recorded.line_of("backward") if recorded is not None else ""
    return [Refusal(ACCUMULATION, phrase("fix.refused.batch"), few([line] if line else []), switch)]
