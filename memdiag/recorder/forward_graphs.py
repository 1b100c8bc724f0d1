"""Counts the forward passes of models, and how many of them autograd records for a backward pass."""

from __future__ import annotations

from typing import Any

_MOST_LOOKS = 64  # passes: a search through the parameters of a frozen model takes time


class ForwardGraphs:
    """Counts forward passes; a model without trainable parameters has no graph.

    Args:
        torch: The module.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.num_forwards = 0
        self.num_graphs = 0

    def enter(self, module: Any) -> None:
        """Counts a pass that begins in the present thread."""
        self.num_forwards += 1
        if self._torch.is_grad_enabled() and (self.num_forwards > _MOST_LOOKS or _is_trainable(module)):
            self.num_graphs += 1


def _is_trainable(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
