"""Samples of the memory of each process on a card: from NVML on CUDA, from DCMI on Ascend, if the library is installed.

Both are libraries of the driver. They create no context, and they count everything of a process: its allocator, its
context, and buffers of libraries. In a container, NVML may know processes by other numbers: then the samples do not
contain this process, and readers count the memory outside the allocator as unknown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

_MOST = 256  # processes of a card
_UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE


class _NvmlProcess(ctypes.Structure):
    """nvmlProcessInfo_t since version 2 of the function."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _DcmiProcess(ctypes.Structure):
    """struct dcmi_proc_mem_info."""

    _fields_ = (("pid", ctypes.c_int), ("bytes", ctypes.c_ulong))


class ProcessSamples:
    """The source ``processes`` of a recording: bytes by process id for each device in use.

    Args:
        backend: "cuda" or "npu".
        card_of: Returns the number by which the driver knows a device, or None if it is unknown.
    """

    name = "processes"

    def __init__(self, backend: str, card_of: Callable[[int], int | None]) -> None:
        self._open = {"cuda": _nvml, "npu": _dcmi}[backend]
        self._card_of = card_of
        self._ask: Callable[[int], dict[int, int] | None] | None = None
        self._is_missing = False

    def take(self, when: str, devices: Sequence[int]) -> list[dict[str, Any]]:  # noqa: ARG002 - as of every source
        """Returns a row for each device whose processes the driver knows."""
        if self._is_missing:
            return []
        if self._ask is None:
            self._ask = self._open()
            if self._ask is None:
                self._is_missing = True
                return []
        rows = []
        for device in devices:
            card = self._card_of(device)
            found = None if card is None else self._ask(card)
            if found:
                rows.append({"device": device, "bytes": found})
        return rows

    def devices(self) -> Sequence[int]:
        """Returns nothing: this source knows no devices."""
        return ()


def _nvml() -> Callable[[int], dict[int, int] | None] | None:
    """Returns the function that asks NVML for the processes of a card, or None if it is not installed."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    names = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    running = next((getattr(library, name) for name in names if hasattr(library, name)), None)
    if running is None:
        return None

    def ask(card: int) -> dict[int, int] | None:
        handle, count, rows = ctypes.c_void_p(), ctypes.c_uint(_MOST), (_NvmlProcess * _MOST)()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(card), ctypes.byref(handle)) != 0:
            return None
        if running(handle, ctypes.byref(count), rows) != 0:
            return None
        found = {int(row.pid): int(row.bytes) for row in rows[: count.value]}
        return None if _UNKNOWN in found.values() else found

    return ask


def _dcmi() -> Callable[[int], dict[int, int] | None] | None:
    """Returns the function that asks DCMI for the processes of a chip, or None if it is not installed."""
    try:
        library = ctypes.CDLL("libdcmi.so")
        if library.dcmi_init() != 0 or not hasattr(library, "dcmi_get_device_resource_info"):
            return None
    except (OSError, AttributeError):
        return None

    def ask(logical: int) -> dict[int, int] | None:
        card, chip, count, rows = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), (_DcmiProcess * _MOST)()
        named = library.dcmi_get_card_id_device_id_from_logicid(
            ctypes.byref(card), ctypes.byref(chip), ctypes.c_uint(logical)
        )
        if named != 0 or library.dcmi_get_device_resource_info(card, chip, rows, ctypes.byref(count)) != 0:
            return None
        return {int(row.pid): int(row.bytes) for row in rows[: max(0, min(count.value, _MOST))]}

    return ask
