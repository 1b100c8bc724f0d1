"""Intel GPUs: the history of torch.xpu, which has the form of torch.cuda's, without out-of-memory callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..guard import contained
from .cuda import Cuda


class Xpu(Cuda):
    """The history of torch.xpu (torch 2.13 and later)."""

    name = "xpu"

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Waits until the program initialises XPU; does nothing if this PyTorch keeps no history of it."""
        self._torch = torch
        if self.keeps_history(torch):
            self._follow()
            torch.xpu._lazy_call(contained(lambda: started(self)))

    @staticmethod
    def keeps_history(torch: Any) -> bool:
        """Returns whether this PyTorch is built for XPU and keeps a history of it."""
        xpu = getattr(torch, "xpu", None)
        memory = getattr(xpu, "memory", None)
        return xpu is not None and xpu._is_compiled() and hasattr(memory, "_record_memory_history")

    @property
    def _home(self) -> Any:
        return self._torch.xpu

    def _can_record(self) -> bool:
        return True

    def leave_captures_alone(self) -> bool:
        """Returns False: whether the timer's thread may call the driver during a capture is unknown."""
        return False

    def _device(self) -> int:
        return int(self._torch.xpu.current_device())

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Does nothing: torch.xpu has no out-of-memory callback."""
