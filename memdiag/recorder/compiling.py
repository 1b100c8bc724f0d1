"""Detects when torch.compile is at work: it makes millions of Python calls that should not be recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Compiling:
    """Calls back before and after each compilation by torch.compile.

    Args:
        begins: Called before.
        ends: Called after it, even if compilation fails.
    """

    def __init__(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self._handler: Any = None
        self._begins = lambda *_: begins()
        self._ends = lambda *_: ends()

    def install(self) -> None:
        """Starts detection, once the compiler has been imported; safe to call again."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        # Before torch 2.3 there is no such hook, and compilation is recorded like everything else.
        if self._handler is None and handler is not None and hasattr(handler, "register_start_callback"):
            handler.register_start_callback(self._begins)
            handler.register_end_callback(self._ends)
            self._handler = handler

    def remove(self) -> None:
        """Stops detection."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        for mine, remove in ((self._begins, handler.remove_start_callback), (self._ends, handler.remove_end_callback)):
            try:
                remove(mine)
            except ValueError:  # the program has cleared all hooks
                pass
