"""Samples of a card: free and total memory according to its driver, and memory reserved by this process's allocator.

The memory outside the allocator (the context, buffers of NCCL or HCCL, other processes) is total - free - reserved.
A device that the program has not used is never queried: that would create a context on it.
"""

from __future__ import annotations

import os
import platform
import threading
import zlib
from collections.abc import Sequence
from typing import Any

from .sampling import TIMER

_ATTEMPTS = 3  # of the timer, to find a moment at which the program does not change the reserved memory


class CardSamples:
    """The source ``card`` of a recording: a row for each device in use.

    Args:
        backend: The backend, with ``can_ask_driver``, ``driver_memory`` and ``allocator_state``.
    """

    name = "card"

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._relaxed: set[int] = set()  # threads

    def take(self, when: str, devices: Sequence[int]) -> list[dict[str, int]]:
        """Returns a row for each device that can be queried."""
        if when == TIMER and not self._may_ask():
            return []
        rows = []
        for device in devices:
            if self._backend.can_ask_driver():
                row = self._row(device, _ATTEMPTS if when == TIMER else 1)
                if row is not None:
                    rows.append(row)
        return rows

    def devices(self) -> list[int]:
        """Returns the devices whose allocator has served a request. This asks no driver, and creates no context."""
        backend = self._backend
        if not backend.is_active:
            return []
        return [device for device in range(backend.num_devices()) if backend.allocator_state(device)[1] > 0]

    def failed(self, device: int, total: int, free: int) -> list[dict[str, int]]:
        """Returns the row of a device whose driver's figures are known already."""
        return [self._joined(device, free, total, self._backend.allocator_state(device))]

    def _row(self, device: int, attempts: int) -> dict[str, int] | None:
        """Returns a row whose figures belong together.

        The timer runs beside the program, which may reserve memory between the two queries: then it asks again.
        """
        state = self._backend.allocator_state(device)
        for _ in range(attempts):
            free, total = self._backend.driver_memory(device)
            after = self._backend.allocator_state(device) if attempts > 1 else state
            if after[0] == state[0]:
                return self._joined(device, free, total, after)
            state = after
        return None

    @staticmethod
    def _joined(device: int, free: int, total: int, state: tuple[int, int, int]) -> dict[str, int]:
        reserved, allocs, frees = state
        return {
            "device": int(device),
            "total_bytes": int(total),
            "free_bytes": int(free),
            "reserved_bytes": reserved,
            "allocs": allocs,
            "frees": frees,
        }

    def _may_ask(self) -> bool:
        """Returns whether the timer's thread may call the driver: a call must not end the capture of a graph."""
        thread = threading.get_ident()
        if thread not in self._relaxed:
            if not self._backend.leave_captures_alone():
                return False
            self._relaxed.add(thread)
        return True


def visible_card(variable: str, device: int) -> str:
    """Returns the card behind a device: its entry in the variable that selects the visible devices, or its number."""
    chosen = [word.strip() for word in os.environ.get(variable, "").split(",")]
    return chosen[device] if 0 <= device < len(chosen) and chosen[device] else str(device)


def card_identity(variable: str, device: int, uuid: Any) -> str:
    """Returns a name of the card behind a device: the same in all processes that share it, and in no others.

    Processes share a simulated card within one recording only, so its name contains the file that they share.
    """
    if os.environ.get("MEMDIAG_PHANTOM"):
        shared = os.path.basename(os.environ.get("MEMDIAG_PHANTOM_CARDS", "")) or f"process-{os.getpid()}"
        return f"{shared}:{visible_card(variable, device)}"
    if uuid:
        return str(uuid)
    return f"{zlib.crc32(platform.node().encode()):08x}:{visible_card(variable, device)}"
