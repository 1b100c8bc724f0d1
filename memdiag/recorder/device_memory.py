"""Samples of free and reserved device memory at a few moments of a run.

The memory outside the allocator (the context, buffers of NCCL or HCCL, other processes) is total - free - reserved.
Querying the driver takes tens of microseconds, so it is done rarely: at the first use of a device, after steps 1, 2, 4,
8 …, at an out-of-memory error and at the end. A device that the program has not used is never queried: that would
create a context on it.
"""

from __future__ import annotations

from typing import Any

from .guard import contained

START, STEP, OOM, END = "start", "step", "oom", "end"
_MOST = 256  # samples in one file


class DeviceMemory:
    """The samples of one process."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self._seen: set[int] = set()

    def used(self, backend: Any, device: int, steps: int) -> None:
        """Takes the first sample of a device; later calls return at once."""
        if device not in self._seen:
            self._seen.add(device)
            self._take(backend, START, (device,), steps)

    def stepped(self, backend: Any, steps: int) -> None:
        """Takes samples after steps 1, 2, 4, 8 and so on."""
        if steps & (steps - 1) == 0:
            self._take(backend, STEP, tuple(self._seen), steps)

    def ended(self, backend: Any, steps: int) -> None:
        """Takes the last samples."""
        self._take(backend, END, tuple(self._seen), steps)

    def failed(self, backend: Any, device: int, total: int, free: int, steps: int) -> None:
        """Stores the numbers of an out-of-memory error."""
        self._seen.add(device)
        self._keep(backend, OOM, device, total, free, steps)

    @contained
    def _take(self, backend: Any, when: str, devices: tuple[int, ...], steps: int) -> None:
        for device in devices:
            if not backend.can_ask_driver():
                return
            free, total = backend.driver_memory(device)
            self._keep(backend, when, device, total, free, steps)

    @contained
    def _keep(self, backend: Any, when: str, device: int, total: int, free: int, steps: int) -> None:
        if len(self.samples) < _MOST:
            self.samples.append(
                {
                    "when": when,
                    "device": int(device),
                    "step": steps,
                    "total_bytes": int(total),
                    "free_bytes": int(free),
                    "reserved_bytes": backend.reserved(device),
                }
            )
