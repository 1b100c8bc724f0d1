"""Losses and optimizer steps that torch.compile or a framework computes with its own code, out of reach of memdiag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memdiag.fix.base import Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.structure import Framework, is_compiled, is_of
from memdiag.text import phrase
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array

_CROSS_ENTROPY = "cross_entropy"
_LOSS = ("loss", "crossentropy", "cross_entropy")
LOSSES = (
    Framework(
        "Liger Kernel",
        ("/liger_kernel/ops/cross_entropy", "/liger_kernel/transformers/cross_entropy"),
        "apply_liger_kernel_to_llama(cross_entropy=False, fused_linear_cross_entropy=True)  # makes no logits",
    ),
    Framework(
        "Megatron-LM",
        ("/megatron/core/tensor_parallel/cross_entropy", "/megatron/core/fusions/fused_cross_entropy"),
        "--cross-entropy-loss-fusion  # or a larger --tensor-model-parallel-size, which splits the vocabulary",
    ),
)
OPTIMIZERS = (
    Framework(
        "DeepSpeed",
        ("/deepspeed/runtime/", "/deepspeed/ops/"),
        '"zero_optimization": {"offload_optimizer": {"device": "cpu"}}  # stage 3: or a smaller "sub_group_size"',
    ),
    Framework(
        "Megatron-LM",
        ("/megatron/core/optimizer/", "/megatron/optimizer/", "/mindspeed/optimizer/"),
        "--use-distributed-optimizer  # or --optimizer-cpu-offload",
    ),
)
_WRAPPER = "/torch/optim/optimizer.py"  # around the step of every optimizer


def loss_refusals(case: FixCase, remedy: str, floor: int) -> list[Refusal]:
    """Returns why the remedy leaves losses alone that make large tensors.

    Args:
        case: The recording.
        remedy: Name of the remedy.
        floor: Bytes from which a tensor is large.
    """
    large = np.flatnonzero((case.device.tensors.requested_bytes >= floor) & (case.device.tensors.alloc_at >= 0))
    frames = case.trace.stacks.frames
    compiled = _below(case, large, [is_compiled(frame) for frame in frames])
    # the stack names the compiled function, but not the functions that it calls
    compiled = _below(case, compiled, [frame.is_user and _is_loss(frame.name) for frame in frames])
    found = []
    if len(compiled):
        where = tuple(frame.label for frame in case.callers(compiled) if _is_loss(frame.name))
        instead = "call torch.nn.functional.cross_entropy outside the compiled function"
        found.append(Refusal(remedy, phrase("fix.refused.loss.compiled"), where[-1:], instead))
    return [*found, *_of_frameworks(case, remedy, large, LOSSES, "loss")]


def of_cross_entropy(case: FixCase) -> Array:
    """Returns which tensors ``torch.nn.functional.cross_entropy`` allocates (bool, one per row in Tensors)."""
    named = [
        frame.name == _CROSS_ENTROPY and frame.filename.endswith("functional.py") for frame in case.trace.stacks.frames
    ]
    found = np.zeros(len(case.device.tensors.stack), bool)
    found[_below(case, np.arange(len(found)), named)] = True
    return found


def optimizer_refusals(case: FixCase, remedy: str, rows: Array) -> tuple[list[Refusal], Array]:
    """Returns why the remedy leaves optimizer steps alone, and the tensors that remain for it: of torch.optim only.

    Args:
        case: The recording.
        remedy: Name of the remedy.
        rows: Temporary tensors of optimizer steps, as rows in Tensors.
    """
    frames = case.trace.stacks.frames
    compiled = _below(case, rows, [is_compiled(frame) for frame in frames])
    inside = _below(case, rows, [_is_optim(frame) for frame in frames])
    own = np.setdiff1d(rows, np.setdiff1d(inside, compiled))  # frameworks may call an optimizer of torch.optim
    owned = [_below(case, own, [is_of(frame, each) for frame in frames]) for each in OPTIMIZERS]
    found = _of_frameworks(case, remedy, own, OPTIMIZERS, "optimizer")
    if len(compiled):
        instead = "torch.optim.AdamW(…, fused=True)  # without torch.compile of step()"
        found.append(Refusal(remedy, phrase("fix.refused.optimizer.compiled"), (), instead))
    return found, np.setdiff1d(inside, np.concatenate([compiled, *owned]))


def _of_frameworks(case: FixCase, remedy: str, rows: Array, known: Sequence[Framework], kind: str) -> list[Refusal]:
    frames = case.trace.stacks.frames
    return [
        Refusal(remedy, phrase(f"fix.refused.{kind}", name=each.name), (), each.switch)
        for each in known
        if len(_below(case, rows, [is_of(frame, each) for frame in frames]))
    ]


def _is_optim(frame: Frame) -> bool:
    path = frame.filename.replace("\\", "/")
    return "/torch/optim/" in path and not path.endswith(_WRAPPER)


def _is_loss(name: str) -> bool:
    return any(word in name.lower() for word in _LOSS)


def _below(case: FixCase, rows: Array, mask: list[bool]) -> Array:
    """Returns those of some tensors that are allocated below some frames (a flag for each frame)."""
    if not any(mask) or not len(rows):
        return rows[:0]
    below = np.append(case.trace.stacks.with_frame(np.array(mask, bool)), False)
    chosen: Array = rows[below[case.device.tensors.stack[rows]]]
    return chosen
