"""Statistics of the devices that the program uses, and of its host memory, at one moment."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from ..backends.cuda import Cuda
from ..backends.npu import Npu
from ..backends.xpu import Xpu
from ..card_samples import CardSamples
from ..host_samples import HostSamples
from ..sampling import MARK, TIMER
from .on_main import NotReached, on_main

_KINDS: dict[str, type[Cuda]] = {"cuda": Cuda, "npu": Npu, "xpu": Xpu}
# Names in a reading, and those of PyTorch's statistics.
_CURRENT = {
    "reserved_bytes": "reserved_bytes",
    "allocated_bytes": "allocated_bytes",
    "active_bytes": "active_bytes",
    "requested_bytes": "requested_bytes",
}


class Statistics:
    """Reads the statistics of a process.

    Args:
        torch: The module.

    Attributes:
        backends: The accelerators that the program uses so far, by name. A recording that starts later uses them too.
    """

    def __init__(self, torch: Any) -> None:
        self.backends: dict[str, Any] = {}
        self._torch = torch
        self._cards: dict[str, CardSamples] = {}
        self._host = HostSamples(torch)
        self._constants: dict[tuple[str, int], dict[str, Any]] = {}

    def find(self) -> None:
        """Finds the accelerators that the program has initialised; never initialises one."""
        for name, kind in _KINDS.items():
            home = getattr(self._torch, name, None)
            is_initialised = getattr(home, "is_initialized", None)
            if name not in self.backends and is_initialised is not None and is_initialised():
                backend = kind()
                if backend.join(self._torch):
                    self.backends[name] = backend
                    self._cards[name] = CardSamples(backend)

    def read(self) -> dict[str, Any]:
        """Returns the statistics; a backend whose statistics cannot be read now has none."""
        self.find()
        rows: list[dict[str, Any]] = []
        is_late = False
        for name in self.backends:
            try:
                rows += on_main(partial(self._rows, name, MARK), 2.0) if name == "npu" else self._rows(name, TIMER)
            except NotReached:
                is_late = True
        host = self._host.take(MARK, [row["index"] for row in rows if row["backend"] == "cuda"]) or {}
        return {"time": time.time(), "devices": rows, "host": host, "late": is_late}

    def _rows(self, name: str, when: str) -> list[dict[str, Any]]:
        """Returns a row for each device of a backend whose allocator this process has used."""
        backend = self.backends[name]
        found = {}
        for index in range(backend.num_devices()):
            stats = backend.statistics(index)
            if stats.get("allocation", {}).get("all", {}).get("allocated"):
                found[index] = stats
        cards = {card["device"]: card for card in self._cards[name].take(when, tuple(found))}
        return [self._row(name, index, stats, cards.get(index)) for index, stats in found.items()]

    def _row(self, name: str, index: int, stats: dict[str, Any], card: dict[str, int] | None) -> dict[str, Any]:
        row: dict[str, Any] = {"backend": name, "index": index, **self._facts(name, index)}
        for key, theirs in _CURRENT.items():
            values = stats.get(theirs, {}).get("all", {})
            row[key] = values.get("current")
        row["peak_reserved_bytes"] = stats.get("reserved_bytes", {}).get("all", {}).get("peak")
        row["peak_allocated_bytes"] = stats.get("allocated_bytes", {}).get("all", {}).get("peak")
        row["num_retries"], row["num_ooms"] = stats.get("num_alloc_retries"), stats.get("num_ooms")
        # The allocator may have reserved memory between the two queries: then the driver's figures fit the later one.
        if card is not None:
            row["reserved_bytes"] = card["reserved_bytes"]
            row["active_bytes"] = _at_most(row["active_bytes"], card["reserved_bytes"])
            row["allocated_bytes"] = _at_most(row["allocated_bytes"], row["active_bytes"])
        row["free_bytes"] = None if card is None else card["free_bytes"]
        return row

    def _facts(self, name: str, index: int) -> dict[str, Any]:
        """Returns what does not change: the device's name, size and the limit that the program set."""
        known = self._constants.get((name, index))
        if known is None:
            backend = self.backends[name]
            properties = backend.properties(index)
            total = int(properties.total_memory)
            known = {"name": str(getattr(properties, "name", name)), "total_bytes": total}
            self._constants[name, index] = known
        fraction = self.backends[name].fraction()
        limit = known["total_bytes"] if fraction is None else int(known["total_bytes"] * fraction)
        return {**known, "limit_bytes": limit}


def _at_most(value: int | None, limit: int | None) -> int | None:
    return value if value is None or limit is None else min(value, limit)


def torch_of_program() -> Any:
    """Returns the program's torch, or None if it has not finished importing it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "autograd") and hasattr(torch, "optim") else None
