"""Ascend NPU: torch_npu's history, made after PyTorch's, with fewer arguments and without times."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..guard import contained, warn
from .cuda import Cuda


class Npu(Cuda):
    """The history of torch.npu."""

    name = "npu"
    has_times = False

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Waits until the program initialises the NPU. ``torch`` must have torch_npu in it already."""
        self._torch = torch
        self._follow()
        torch.npu._lazy_call(contained(lambda: started(self)))

    @property
    def _memory(self) -> Any:
        return self._torch.npu.memory

    def _can_record(self) -> bool:
        # A pluggable allocator without a statistics function kills the process when asked for statistics or a snapshot.
        backend = getattr(self._memory, "get_allocator_backend", lambda: "native")()
        if backend != "native":
            warn(f"the allocator in use is {backend}: asking it for a snapshot can end the process, nothing is recorded of it")
        return backend == "native"

    def _device(self) -> int:
        return int(self._torch.npu.current_device())

    def facts(self) -> dict[str, Any]:
        """Returns capacity and counters of each device in use."""
        npu, capacity, counts = self._torch.npu, {}, {}
        for device in range(npu.device_count()):
            stats = self._memory.memory_stats_as_nested_dict(device)
            allocation = stats.get("allocation", {}).get("all", {})
            if not allocation.get("allocated"):
                continue
            capacity[device] = int(npu.get_device_properties(device).total_memory)
            counts[device] = {
                "allocs": allocation["allocated"],
                "frees": allocation["freed"],
                "retries": stats.get("num_alloc_retries", -1),
                "ooms": stats.get("num_ooms", -1),
            }
        return {"capacity_bytes": capacity, "counts": counts, "fraction": None, "settings": self._settings()}

    def _settings(self) -> dict[str, str]:
        names = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TASK_QUEUE_ENABLE", "MULTI_STREAM_MEMORY_REUSE", "HCCL_BUFFSIZE")
        return {name: os.environ[name] for name in names if name in os.environ}

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Calls back when an allocation fails, before the exception."""
        import torch_npu  # in the program already

        torch_npu._C._npu_attach_out_of_memory_observer(callback)
