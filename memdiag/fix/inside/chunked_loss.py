"""Computes cross entropy in parts, so that it needs no copies of all logits."""

import functools

import torch
from torch.nn import functional


class _InParts(torch.autograd.Function):
    """The mean or sum of the cross entropy of rows, and its gradient, a part of the rows at a time.

    The gradient is computed in forward, so that logits need not be kept for backward.
    """

    @staticmethod
    def forward(ctx, logits, target, ignore_index, label_smoothing, is_mean, rows):
        count = (target != ignore_index).sum() if is_mean else None
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        total = None
        for begin in range(0, len(logits), rows):
            chosen = slice(begin, begin + rows)
            with torch.set_grad_enabled(gradient is not None):
                part = logits[chosen].detach().requires_grad_(gradient is not None)
                loss = _original(
                    part, target[chosen], ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="sum"
                )
                loss = loss / count if is_mean else loss
            if gradient is not None:
                gradient[chosen] = torch.autograd.grad(loss, part)[0]
            total = loss.detach() if total is None else total + loss.detach()
        ctx.gradient = gradient
        return total

    @staticmethod
    def backward(ctx, grad_output):
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            raise RuntimeError("chunked_loss: backward() through the same loss a second time is not supported")
        return gradient.mul_(grad_output), None, None, None, None, None


_original = functional.cross_entropy


def chunked_loss(part_bytes):
    """Makes ``torch.nn.functional.cross_entropy`` compute large losses in parts.

    Args:
        part_bytes: Bytes of logits in one part; smaller losses stay as they are.
    """

    @functools.wraps(_original)
    def cross_entropy(
        input,
        target,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
    ):
        if getattr(getattr(torch, "compiler", None), "is_compiling", bool)():  # the compiler fuses the loss itself
            return _original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        row = input.shape[-1] * input.element_size() if input.dim() == 2 else 0
        usual = weight is None and size_average is None and reduce is None and reduction in ("mean", "sum")
        if not usual or not row or target.is_floating_point() or len(input) * row <= part_bytes:
            return _original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        rows = max(part_bytes // row, 1)
        return _InParts.apply(input, target, ignore_index, label_smoothing, reduction == "mean", rows)

    functional.cross_entropy = cross_entropy
