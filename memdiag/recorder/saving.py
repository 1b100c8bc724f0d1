"""Samples of host memory around every save of a checkpoint: one before, and one after.

The peak of a save needs no samples in between, as the kernel counts the highest resident memory of a process. It wraps
``torch.save``, and ``save`` of torch.distributed.checkpoint and of safetensors when the program imports them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from .guard import contained
from .sampling import SAVE, SAVED

# The functions that save a checkpoint, by the module that has them.
SAVERS = {
    "torch": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save",),
    "safetensors.torch": ("save_file",),
}
_PAUSE = 1.0  # seconds: saves that follow each other sooner are one


class SaveWrappers:
    """The wrapped functions of one process.

    Args:
        take: Takes a sample of an occasion.
    """

    def __init__(self, take: Callable[[str], None]) -> None:
        self._sample = contained(take)
        self._depth = 0
        self._ended = 0.0
        self._sampled = 0.0
        self._lock = threading.Lock()
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, module: Any) -> None:
        """Wraps the functions of a module, if it is one of ``SAVERS``."""
        for name in SAVERS.get(module.__name__, ()):
            original = getattr(module, name, None)
            if original is None:
                continue
            wrapped = self._wrapped(original)
            homes = (module, getattr(module, "serialization", module))  # torch.save is torch.serialization.save
            for home in {id(home): home for home in homes}.values():
                if getattr(home, name, None) is original:
                    setattr(home, name, wrapped)
                    self._replaced.append((home, name, wrapped, original))

    def remove(self) -> None:
        """Restores the original functions."""
        for home, name, wrapped, original in self._replaced:
            if getattr(home, name, None) is wrapped:
                setattr(home, name, original)
        self._replaced.clear()

    def _wrapped(self, original: Any) -> Any:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            self._enter()
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        return save

    def _enter(self) -> None:
        with self._lock:
            self._depth += 1
            begins = self._depth == 1 and time.perf_counter() - self._ended >= _PAUSE
        if begins:
            self._sampled = 0.0
            self._sample(SAVE)

    def _leave(self) -> None:
        with self._lock:
            self._depth -= 1
            self._ended = now = time.perf_counter()
            ends = self._depth == 0 and now - self._sampled >= _PAUSE
        if ends:
            self._sampled = now
            self._sample(SAVED)
