"""Keeps torch's compiler unloaded while PyTorch makes a snapshot.

To name the frames of compiled code, a snapshot reads ``torch._inductor``. PyTorch loads that module when it is first
read, which takes more than a second, although a program that has not loaded it has no such frames.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_NAME = "_inductor"


class _Unloaded(ModuleType):
    """Stands for a module that is not loaded: empty for the thread that made it, the real module for others."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._owner = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._owner:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def compiler_stays_unloaded(torch: Any) -> Iterator[None]:
    """Within this block, this thread's reads of ``torch._inductor`` do not load it; loaded, it stays as it is."""
    name = f"{torch.__name__}.{_NAME}"
    if name in sys.modules or _NAME in vars(torch):
        yield
        return
    stand_in = _Unloaded(name)
    setattr(torch, _NAME, stand_in)
    try:
        yield
    finally:
        if vars(torch).get(_NAME) is stand_in:  # another thread may have loaded it meanwhile
            delattr(torch, _NAME)
