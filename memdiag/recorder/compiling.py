"""Notices when torch.compile is at work: tracing and compiling is millions of Python calls that nobody wants on record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Compiling:
    """Calls back before and after each time that torch.compile compiles something.

    Args:
        begins: Called before.
        ends: Called after, also where compiling fails.
    """

    def __init__(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self._handler: Any = None
        self._begins = lambda *_: begins()
        self._ends = lambda *_: ends()

    def install(self) -> None:
        """Begins to look, once the compiler has been imported; safe to call again."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        # Before torch 2.3 there is none, and compiling is recorded like all else.
        if self._handler is None and handler is not None and hasattr(handler, "register_start_callback"):
            handler.register_start_callback(self._begins)
            handler.register_end_callback(self._ends)
            self._handler = handler

    def remove(self) -> None:
        """Looks no more."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        for mine, remove in ((self._begins, handler.remove_start_callback), (self._ends, handler.remove_end_callback)):
            try:
                remove(mine)
            except ValueError:  # the program has cleared them all
                pass
