"""Waits for the devices that a program uses, each with the backend that can record it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from .backends.counters import ANY, Counters, counters_of
from .backends.cpu import Cpu
from .backends.cuda import Cuda
from .backends.npu import Npu
from .backends.xpu import Xpu
from .guard import contained


def watch_devices(torch: Any, wanted: Sequence[str], started: Callable[[Any], None]) -> None:
    """Calls ``started(backend)`` once the program uses a device whose allocator keeps a history.

    Args:
        torch: The module.
        wanted: Backends that the user chose; empty for the accelerators in use, else the CPU.
        started: Called at the first use, which for the CPU is now.
    """
    for accelerator in (Cuda(), Xpu()):
        if not wanted or accelerator.name in wanted:
            contained(accelerator.watch)(torch, started)
    cpu = Cpu()
    if "cpu" in wanted or (not wanted and cpu.is_alone(torch)):
        cpu.watch(torch, started)


class FirstUse:
    """Waits for an accelerator that has counters only: nothing tells when the program first uses it.

    Args:
        torch: The module.
        sampler: The samples of the recording.
        start_samples: Adds the sources of a backend to the samples, and starts their timer.
        started: Called with the backend once the program has used its device.
    """

    def __init__(
        self, torch: Any, sampler: Any, start_samples: Callable[[Any], None], started: Callable[[Any], None]
    ) -> None:
        self._torch = torch
        self._sampler = sampler
        self._start_samples = start_samples
        self._started = started
        self._waiting: Counters | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits, with a timer that takes samples."""
        return self._waiting is not None

    @contained
    def count(self, wanted: Sequence[str]) -> None:
        """Begins to wait for the accelerator of this process, if it has one that keeps no history.

        Args:
            wanted: Backends that the user chose; empty for all.
        """
        if self._waiting is None and (found := counters_of(self._torch, wanted)) is not None:
            self._waiting = found
            self._start_samples(found)

    def instead_of(self, backend: Any) -> None:
        """Counts the memory of a device whose allocator keeps no history, such as cudaMallocAsync.

        On Ascend, an allocator of the program without statistics ends the process when it is asked for them.
        """
        if backend.name != Npu.name:
            self.count((ANY,))

    @contained
    def look(self) -> None:
        """Starts the backend if the program has used the device; called at marks and before a file is written."""
        found = self._waiting
        if found is None or threading.current_thread() is not threading.main_thread():
            return
        if found.is_used():
            self._waiting = None
            self._started(found)
            self._sampler.devices.update(found.devices())
            self._sampler.are_all = True


def has_content(snapshot: dict[str, Any]) -> bool:
    """Returns whether a snapshot has entries or blocks."""
    return any(snapshot.get("device_traces") or ()) or bool(snapshot.get("segments"))
