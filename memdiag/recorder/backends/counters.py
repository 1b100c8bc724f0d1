"""Counters of an accelerator whose allocator keeps no history: MPS, MTIA, other backends of torch.accelerator.

The counters come from ``torch.accelerator`` (torch 2.9 and later) or, if that does not know them, from the module of
the device, such as ``torch.mps``. They are sampled over time. A sample has no tensors and no call sites, and a peak
between two samples is known only if the allocator counts its own peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..marks import NOWHERE, Position
from .cuda import Cuda
from .npu import Npu
from .xpu import Xpu

ANY = "accelerator"  # the word with which a user asks for counters of any accelerator
_WITH_HISTORY = frozenset({Cuda.name, Npu.name, Xpu.name})
# Keys of a row, and the counters of torch.accelerator.memory_stats.
_STATS = {
    "reserved_bytes": "reserved_bytes.all.current",
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_peak_bytes": "reserved_bytes.all.peak",
    "allocated_peak_bytes": "allocated_bytes.all.peak",
}
# The same keys, and functions of a device's own module. What Metal allocated for the process includes cached blocks.
_FUNCTIONS = {
    "reserved_bytes": ("memory_reserved", "driver_allocated_memory"),
    "allocated_bytes": ("memory_allocated", "current_allocated_memory"),
    "reserved_peak_bytes": ("max_memory_reserved",),
    "allocated_peak_bytes": ("max_memory_allocated",),
}


class Counters:
    """The counters of the current accelerator.

    Args:
        torch: The module.
        kind: Type of the device, such as "mps".
    """

    name = ANY
    has_times = True
    is_counted = True  # snapshots have no entries; the samples of a recording have the counters

    def __init__(self, torch: Any, kind: str) -> None:
        self.kind = kind
        self.is_active = False
        self._torch = torch
        self._num_rows = 0

    def is_used(self) -> bool:
        """Returns whether the program has allocated memory of the device; initialises nothing."""
        is_initialized = getattr(self._torch._C, "_accelerator_isAllocatorInitialized", None)
        try:
            if is_initialized is not None and not is_initialized():
                return False
        except RuntimeError:  # torch.accelerator does not know this allocator, but the device's module may
            pass
        return bool(self.devices())

    def devices(self) -> list[int]:
        """Returns the devices with memory in use."""
        rows = ((device, self.row(device)) for device in range(self.num_devices()))
        return [device for device, row in rows if max(row.values(), default=0) > 0]

    def row(self, device: int) -> dict[str, int]:
        """Returns the counters of a device in bytes; those that it does not have are absent."""
        stats = self._stats(device)
        if stats:
            return {key: int(stats[name]) for key, name in _STATS.items() if name in stats}
        home = getattr(self._torch, self.kind, None)
        found = {}
        for key, names in _FUNCTIONS.items():
            read = next((getattr(home, name) for name in names if hasattr(home, name)), None)
            try:
                if read is not None:
                    found[key] = int(read() if self.kind == "mps" else read(device))
            except RuntimeError:  # an allocator of the program has no statistics
                return {}
        return found

    def sample(self, device: int) -> dict[str, int]:
        """Returns the counters of a device for a sample."""
        self._num_rows += 1
        return {"device": device, **self.row(device)}

    def _stats(self, device: int) -> dict[str, Any]:
        """Returns the counters of ``torch.accelerator``; empty if it has none of this device."""
        read = getattr(getattr(self._torch, "accelerator", None), "memory_stats", None)
        if read is None:
            return {}
        try:
            return dict(read(device))
        except RuntimeError:  # the allocator of this accelerator has no statistics
            return {}

    def num_devices(self) -> int:
        """Returns the number of visible devices."""
        count = getattr(getattr(self._torch, "accelerator", None), "device_count", None)
        return 1 if count is None else int(count())

    def knows_card(self) -> bool:
        """Returns whether the driver reports free memory, without which there is no account of the card."""
        try:
            return self.driver_memory(0)[1] > 0
        except (RuntimeError, AttributeError, NotImplementedError):
            return False

    def driver_memory(self, device: int) -> tuple[int, int]:
        """Returns free and total bytes of a device from its driver."""
        read = getattr(self._torch.accelerator, "get_memory_info", None)
        if read is None:
            read = getattr(self._torch, self.kind).mem_get_info
        free, total = read(device)
        return int(free), int(total)

    def can_ask_driver(self) -> bool:
        """Returns whether the driver may be queried now."""
        return self.is_active

    def leave_captures_alone(self) -> bool:
        """Returns True for devices that capture no graphs; otherwise the timer does not query the driver."""
        return self.kind not in _WITH_HISTORY

    def allocator_state(self, device: int) -> tuple[int, int, int]:
        """Returns the reserved bytes of a device; the numbers of its blocks are unknown."""
        return self.row(device).get("reserved_bytes", 0), -1, -1

    def start(self, max_events: int) -> None:  # noqa: ARG002 - as of every backend
        """Starts: there is nothing to switch on."""
        self.is_active = True

    def stop(self) -> None:
        """Stops."""
        self.is_active = False

    def position(self) -> Position:
        """Returns nowhere: samples are placed by their times."""
        return NOWHERE

    def snapshot(self) -> dict[str, Any] | None:
        """Returns a snapshot without blocks and without entries; the counters are in the samples."""
        return {"segments": [], "device_traces": [[]], "allocator_settings": {}} if self.is_active else None

    def num_events(self, content: dict[str, Any]) -> int:  # noqa: ARG002 - as of every backend
        """Returns the number of rows of counters so far."""
        return self._num_rows

    def facts(self) -> dict[str, Any]:
        """Returns the capacity of each device whose driver reports it."""
        devices = self.devices() if self.knows_card() else []
        return {"counters": True, "capacity_bytes": {device: self.driver_memory(device)[1] for device in devices}}

    def on_oom(self, callback: Any) -> None:
        """Does nothing: there is no callback."""


class CounterSamples:
    """The source ``counters`` of a recording: a row for each device in use.

    Args:
        backend: The counters.
    """

    name = "counters"

    def __init__(self, backend: Counters) -> None:
        self._backend = backend

    def take(self, when: str, devices: Sequence[int]) -> list[dict[str, int]]:  # noqa: ARG002 - as of every source
        """Returns the counters of each device."""
        return [self._backend.sample(device) for device in devices]

    def devices(self) -> list[int]:
        """Returns the devices with memory in use."""
        return self._backend.devices() if self._backend.is_used() else []


def counters_of(torch: Any, wanted: Sequence[str]) -> Counters | None:
    """Returns the counters of the accelerator of this process, or None if it has none, or one that has a history.

    Args:
        torch: The module.
        wanted: Backends that the user chose; empty for all. "accelerator" is for the counters of any accelerator.
    """
    kind = kind_of(torch)
    if not kind:
        return None
    has_history = kind in _WITH_HISTORY and (kind != Xpu.name or Xpu.keeps_history(torch))
    if ANY in wanted or (not has_history and (not wanted or kind in wanted)):
        return Counters(torch, kind)
    return None


def kind_of(torch: Any) -> str:
    """Returns the type of the accelerator that this PyTorch and this machine have, or ""."""
    find = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    if find is not None:
        found = find()
        return "" if found is None else str(found.type)
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    return "mps" if mps is not None and mps.is_available() else ""
