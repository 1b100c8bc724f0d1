"""Orders the frees at the end of autocast by address, in recordings of simulated devices.

At the end of the outermost region of autocast, PyTorch frees its half-precision copies of weights in the order of a
hash map whose keys are host addresses (autocast_mode.cpp: ``clear_cache``), so the order differs from run to run. The
allocator's state after these frees does not depend on their order. Recordings of real devices keep PyTorch's order.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..guard import contained

_FUNCTION = "clear_autocast_cache"
_MOST_REGIONS = 100_000  # 30 MB; the oldest are dropped
_ALLOC, _FREE, _FREED = "alloc", "free_requested", "free_completed"

Counts = tuple[int, int]  # allocated and freed blocks of a device so far


def is_simulated() -> bool:
    """Returns whether this process runs on a simulated device."""
    return bool(os.environ.get("MEMDIAG_PHANTOM"))


class AutocastFrees:
    """The ends of autocast of one process, with the counts of allocated and freed blocks before and after each.

    Args:
        backend: Returns the counts of its devices.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._ends: deque[tuple[int, Counts, int]] = deque(maxlen=_MOST_REGIONS)  # device, counts before, frees after
        self._release: Any = lambda: None

    def install(self, torch: Any) -> None:
        """Wraps the function that autocast calls to free its copies."""
        original = getattr(torch, _FUNCTION, None)
        if original is None:
            return

        def clear_autocast_cache(*args: Any) -> Any:
            before = self._counts()
            try:
                return original(*args)
            finally:
                self._ended(before)

        for attribute in ("__doc__", "__name__", "__qualname__", "__module__"):
            setattr(clear_autocast_cache, attribute, getattr(original, attribute, None))
        clear_autocast_cache.__wrapped__ = original  # type: ignore[attr-defined]
        setattr(torch, _FUNCTION, clear_autocast_cache)

        def release() -> None:
            if getattr(torch, _FUNCTION, None) is clear_autocast_cache:
                setattr(torch, _FUNCTION, original)

        self._release = release

    def remove(self) -> None:
        """Removes the wrapper; the known ends remain."""
        self._release()

    @contained
    def _counts(self) -> list[Counts]:
        backend = self._backend
        if not backend.is_active:
            return []
        return [backend.allocator_state(device)[1:] for device in range(backend.num_devices())]

    @contained
    def _ended(self, before: Sequence[Counts] | None) -> None:
        after = self._counts() or ()
        for device, (then, now) in enumerate(zip(before or (), after)):
            if now[1] > then[1] + 1:
                self._ends.append((device, then, now[1]))

    @contained
    def order(self, content: dict[str, Any]) -> None:
        """Orders the frees at the ends of autocast in a snapshot that was made just now, in place."""
        by_device: dict[int, list[tuple[Counts, int]]] = {}
        for device, before, after in self._ends:
            by_device.setdefault(device, []).append((before, after))
        traces = content.get("device_traces") or ()
        for device, ends in by_device.items():
            if device < len(traces):
                _order_trace(traces[device], ends, self._backend.allocator_state(device)[1:])


def _order_trace(trace: list[dict[str, Any]], ends: Sequence[tuple[Counts, int]], now: Counts) -> None:
    """Orders the frees at the ends of autocast on one device.

    Args:
        trace: Entries of the device, oldest first.
        ends: For each end, the counts of blocks before it, and the freed blocks after it.
        now: Counts of blocks at the end of the trace. Where the entries do not agree with the counts, since the program
            stopped or cleared the history, the order remains.
    """
    allocs = [index for index, entry in enumerate(trace) if entry["action"] == _ALLOC]
    frees = [index for index, entry in enumerate(trace) if entry["action"] == _FREE]
    first_alloc, first_free = now[0] - len(allocs), now[1] - len(frees)  # counts at the beginning of the trace
    for (allocs_before, frees_before), frees_after in ends:
        if frees_before < first_free or frees_after > now[1]:
            continue
        begin, last = (frees[count - first_free] for count in (frees_before, frees_after - 1))
        if bisect_left(allocs, begin) == allocs_before - first_alloc:
            _order_frees(trace, begin, last)


def _order_frees(trace: list[dict[str, Any]], begin: int, last: int) -> None:
    """Orders by address the blocks that are freed directly one after the other, from one entry to another.

    A block has one or two entries: that it is freed, and that it is free. Times remain in place.
    """
    index = begin
    while index <= last:
        start, groups = index, []
        while index <= last and trace[index]["action"] == _FREE:
            until = index + 1
            if (
                until < len(trace)
                and trace[until]["action"] == _FREED
                and _address(trace, until) == _address(trace, index)
            ):
                until += 1
            groups.append(trace[index:until])
            index = until
        if len(groups) > 1:
            times = [entry.get("time_us") for entry in trace[start:index]]
            groups.sort(key=lambda group: group[0]["addr"])
            trace[start:index] = [entry for group in groups for entry in group]
            for entry, time_us in zip(trace[start:index], times):
                if time_us is not None:
                    entry["time_us"] = time_us
        index = max(index, start + 1)


def _address(trace: Sequence[dict[str, Any]], index: int) -> int:
    return int(trace[index]["addr"])
