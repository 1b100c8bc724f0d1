"""Counts training steps through PyTorch's hook after every optimizer step, by the rule of the recorder."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ..step_ends import StepEnds


class Steps:
    """Counts training steps: one per iteration, also with several optimizers.

    Attributes:
        count: Steps since the watch began, or None if this version of torch has no such hook.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self._handle: Any = None
        self._is_missing = False
        self._ends = StepEnds()
        self._pid = os.getpid()

    @property
    def is_installed(self) -> bool:
        """Whether nothing remains to be installed."""
        return self._handle is not None or self._is_missing

    def install(self) -> None:
        """Installs the hook; call it on the main thread."""
        optimizer = import_module("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        self._is_missing = register is None
        if register is not None and self._handle is None:
            self.count = 0
            self._handle = register(self._stepped)

    def remove(self) -> None:
        """Removes the hook; call it on the main thread."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002 - as PyTorch calls it
        if self.count is not None and os.getpid() == self._pid:
            self.count += self._ends.ends(optimizer)
