"""CUDA and ROCm: PyTorch's own history of its caching allocator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..guard import contained, warn
from ..marks import NOWHERE, Position

# Python frames only: unwinding C++ stacks makes dumps a hundred times slower.
_STACKS = "python"


class Cuda:
    """The history of torch.cuda. ``torch.cuda`` and ``torch.npu`` have the same functions: see ``npu``."""

    name = "cuda"
    has_times = True

    def __init__(self) -> None:
        self.is_active = False
        self.taken_over = ""  # what the program itself did to the history
        self._torch: Any = None
        self._stats: Any = None
        self._max_events = 0
        self._busy = False

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Waits until the program initialises CUDA: starting the history would do that, and break programs that fork."""
        self._torch = torch
        if torch.backends.cuda.is_built():
            torch.cuda._lazy_call(contained(lambda: started(self)))

    @property
    def _memory(self) -> Any:
        return self._torch.cuda.memory

    def start(self, max_events: int) -> None:
        """Starts the history."""
        if not self._can_record():
            return
        self._max_events = max_events
        self._busy = True
        try:
            self._memory._record_memory_history(enabled="all", context="all", stacks=_STACKS, max_entries=max_events)
        finally:
            self._busy = False
        self._stats = self._memory.memory_stats_as_nested_dict
        self.is_active = True

    def _can_record(self) -> bool:
        backend = getattr(self._torch.cuda.memory, "get_allocator_backend", lambda: "native")()
        if backend != "native":
            warn(f"the allocator in use is {backend}: it keeps no history, nothing is recorded of it")
        return backend == "native"

    def follow(self, before_end: Callable[[], None]) -> None:
        """Notices when the program itself starts or stops the history; calls ``before_end`` before it is lost."""
        memory = self._memory
        original = memory._record_memory_history

        def record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> Any:
            if self.is_active and not self._busy:
                self.taken_over = "stopped" if not enabled else "restarted"
                if not enabled or kwargs.get("clear_history"):
                    contained(before_end)()
                warn(f"the program itself {self.taken_over} the history of {self.name}; its settings are left as they are")
            return original(enabled, *args, **kwargs)

        for attribute in ("__doc__", "__name__", "__qualname__", "__module__", "__signature__"):
            if hasattr(original, attribute):
                setattr(record_memory_history, attribute, getattr(original, attribute))
        memory._record_memory_history = record_memory_history
        self._release = lambda: setattr(memory, "_record_memory_history", original)

    def stop(self) -> None:
        """Stops the history, unless the program itself has taken it over."""
        release = getattr(self, "_release", None)
        if release is not None:
            release()
        if self.is_active and not self.taken_over:
            self._memory._record_memory_history(enabled=None)
        self.is_active = False

    def position(self) -> Position:
        """Returns the current device, how many blocks it has handed out and how many it got back."""
        if not self.is_active:
            return NOWHERE
        allocation = self._stats()["allocation"]["all"]
        return self._device(), allocation["allocated"], allocation["freed"]

    def _device(self) -> int:
        return int(self._torch.cuda.current_device())

    def snapshot(self) -> dict[str, Any] | None:
        """Returns PyTorch's snapshot; None: nothing was recorded."""
        if not self.is_active:
            return None
        content: dict[str, Any] = self._memory._snapshot()
        return content

    def facts(self) -> dict[str, Any]:
        """Returns capacity and counters of each device in use."""
        cuda, capacity, counts = self._torch.cuda, {}, {}
        for device in range(cuda.device_count()):
            stats = self._memory.memory_stats_as_nested_dict(device)
            if not stats or not stats.get("allocation", {}).get("all", {}).get("allocated"):
                continue
            capacity[device] = int(cuda.get_device_properties(device).total_memory)
            allocation = stats["allocation"]["all"]
            counts[device] = {
                "allocs": allocation["allocated"],
                "frees": allocation["freed"],
                "retries": stats.get("num_alloc_retries", -1),
                "ooms": stats.get("num_ooms", -1),
            }
        return {"capacity_bytes": capacity, "counts": counts, "fraction": self._fraction(), "settings": self._settings()}

    def _fraction(self) -> float | None:
        get = getattr(self._memory, "get_per_process_memory_fraction", None)
        try:
            return None if get is None else float(get())
        except (RuntimeError, AttributeError):
            return None

    def _settings(self) -> dict[str, str]:
        names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")
        return {name: os.environ[name] for name in names if name in os.environ}

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Calls back (device, bytes wanted, bytes of the device, bytes free) when an allocation fails, before the exception."""
        self._torch._C._cuda_attach_out_of_memory_observer(callback)
