"""Counts the forward passes of models, and how many of them autograd records for a backward pass."""

from __future__ import annotations

from typing import Any

_MOST_LOOKS = 64  # passes: a search through the parameters of a frozen model takes time


class ForwardGraphs:
    """Counts forward passes; a model without trainable parameters has no graph.

    Args:
        torch: The module.

    Attributes:
        num_forwards, num_graphs: Number of passes, and of those with a graph.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.num_forwards = 0
        self.num_graphs = 0
        self._evaluates = False  # the last pass with a graph is that of a model in evaluation mode
        self._trains = False  # a backward has followed one of a model in training mode
        self._uses_evaluation = False  # a backward has followed one of a model in evaluation mode

    @property
    def is_evaluation(self) -> bool:
        """Whether the last pass belongs to an evaluation: such passes had a graph, and never a backward."""
        return self._evaluates and self._trains and not self._uses_evaluation

    def backward(self) -> None:
        """A backward begins in the present thread."""
        self._trains |= not self._evaluates
        self._uses_evaluation |= self._evaluates

    def enter(self, module: Any) -> None:
        """Counts a pass that begins in the present thread."""
        self.num_forwards += 1
        if self._torch.is_grad_enabled() and (self.num_forwards > _MOST_LOOKS or _is_trainable(module)):
            self.num_graphs += 1
            self._evaluates = not module.training
        else:
            self._evaluates = False


def _is_trainable(module: Any) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
