"""Remedies that only the program itself can apply, for programs that do not fit with the others."""

from __future__ import annotations

from memdiag.fix.base import Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.structure import HALF_BATCH, few
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
    ("/megatron/", "--micro-batch-size N  # half of it, with the same --global-batch-size"),
    ("/torchtitan/", "--training.local_batch_size N  # half of it, with the same --training.global_batch_size"),
    ("/deepspeed/", '"train_micro_batch_size_per_gpu": N, "gradient_accumulation_steps": 2  # N is half of it'),
    ("/torch/distributed/fsdp/", "model.set_requires_gradient_sync(False)  # in all backwards of a step but the last"),
    ("/torch/nn/parallel/distributed.py", "with model.no_sync():  # in all backwards of a step but the last"),
)


def switch_of_batch(case: FixCase) -> str:
    """Returns how to split the batch in a program whose framework calls the model, or ""."""
    files = {frame.filename.replace("\\", "/") for frame in case.trace.stacks.frames}
    return next((line for part, line in _SWITCHES if any(part in file for file in files)), "")


def by_hand(case: FixCase) -> list[Refusal]:
    """Returns the remedies that memdiag does not apply to a program, with the reason and the change to make by hand.

    For a snapshot, that is to record the program, because a plan from a recording has more remedies.
    """
    recorded = case.trace.recorded
    unrecorded = Refusal("checkpoint", phrase("fix.refused.unrecorded"), (), "memdiag record -- python train.py")
    more = [unrecorded] if recorded is None and not case.modules.spans else []  # a snapshot of PyTorch itself
    if not (case.passes.phase == BACKWARD).any():
        return more
    line = recorded.line_of("backward") if recorded is not None else ""
    switch = switch_of_batch(case)
    reason = "fix.refused.batch.framework" if switch else "fix.refused.batch"
    return [Refusal(ACCUMULATION, phrase(reason), few([line] if line else []), switch or HALF_BATCH), *more]
