"""Frees gradients instead of setting them to zero."""

import functools

import torch


def free_gradients():
    """Makes ``zero_grad`` of optimizers and modules use ``set_to_none=True``, whatever the program passes."""
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(self, set_to_none=True, original=original):
            original(self, set_to_none=True)

        owner.zero_grad = zero_grad
