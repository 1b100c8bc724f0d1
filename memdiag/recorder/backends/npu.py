"""Ascend NPU: torch_npu's history, modelled on PyTorch's, with fewer arguments and without times.

On memdiag's simulated NPU, the simulated runtime counts the blocks of each device, which the allocator reports to it
(``memdiag_phantom_blocks``: two integers at a fixed address). Reading them takes a fraction of a microsecond.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from ..guard import contained, warn
from ..marks import Position
from ..texts import text_of
from .cuda import Cuda


class Npu(Cuda):
    """The history of torch.npu."""

    name = "npu"
    has_times = False
    visible = "ASCEND_RT_VISIBLE_DEVICES"

    def __init__(self) -> None:
        super().__init__()
        self._ask: Any = None
        self._counts: dict[int, Any] = {}

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Waits until the program initialises the NPU. ``torch`` must already have torch_npu loaded."""
        self._torch = torch
        self._follow()
        torch.npu._lazy_call(contained(lambda: started(self)))

    @property
    def _home(self) -> Any:
        return self._torch.npu

    def _can_record(self) -> bool:
        # A pluggable allocator without a statistics function kills the process on a request for statistics or a
        # snapshot.
        backend = getattr(self._memory, "get_allocator_backend", lambda: "native")()
        if backend != "native":
            warn(text_of("allocator.dangerous", name=backend))
        return backend == "native"

    def start(self, max_events: int) -> None:
        """Starts the history."""
        super().start(max_events)
        self._ask = _stand_in() if self.is_active else None
        if self._ask is not None:
            # the statistics are empty before the first allocation
            known = self._stats().get("allocation", {}).get("all", {"allocated": 0, "freed": 0})
            if (known["allocated"], known["freed"]) != self.quick_position()[1:]:
                self._ask = None

    @property
    def is_quick(self) -> bool:
        """Returns whether ``quick_position`` can be called at every module call."""
        return self._ask is not None

    def quick_position(self) -> Position:
        """Returns the result of ``position`` without calling the allocator."""
        device = self._device()
        counts = self._counts.get(device)
        if counts is None:
            counts = self._counts[device] = self._ask(device)
        return device, counts[0], counts[1]

    def leave_captures_alone(self) -> bool:
        """Returns False: torch_npu may call the recorder with its allocator locked, and the timer would wait for it."""
        return False

    def _device(self) -> int:
        return int(self._torch.npu.current_device())

    def _settings(self) -> dict[str, str]:
        names = (
            "PYTORCH_NPU_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
            "TASK_QUEUE_ENABLE",
            "MULTI_STREAM_MEMORY_REUSE",
            "HCCL_BUFFSIZE",
        )
        return {name: os.environ[name] for name in names if name in os.environ}

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Calls back when an allocation fails, before the exception."""
        import torch_npu  # already in the program

        torch_npu._C._npu_attach_out_of_memory_observer(callback)


def _stand_in() -> Any:
    """Returns the function that locates a device's two counts (allocated, freed), or None on a real device."""
    try:
        ask = ctypes.CDLL(None).memdiag_phantom_blocks
    except (OSError, AttributeError):
        return None
    ask.restype = ctypes.POINTER(ctypes.c_int64)
    return ask
