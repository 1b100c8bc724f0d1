"""Samples of host memory: this process, the processes below it, shared memory, the cgroup, and pinned memory.

Everything comes from /proc, /sys/fs/cgroup and PyTorch's counters. Reading them takes some 0.1 ms and 0.05 ms for each
child, so samples at phases and steps are at least half a second apart. The proportional set size (PSS) takes far
longer, as the kernel walks all page tables: it is read at the start, at failures and at the end, and otherwise so
rarely that it takes 0.2 % of the time. Systems without /proc have only the peak of the resident set.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import cgroup
from .mps_counters import mps_memory
from .pinned_tensors import pinned_tensors
from .sampling import END, MARK, OOM, SAVE, SAVED, START

_ALWAYS = frozenset({START, MARK, OOM, END, SAVE, SAVED})
_WITH_PSS = frozenset({START, OOM, END})
_PAUSE = 0.5  # seconds between other samples
_PSS_SHARE = 0.002  # fraction of the time
_PINNED_SHARE = 0.002  # fraction of the time for finding pinned tensors
_LEAST_PINNED = 64 << 20  # bytes in use from which pinned tensors are of interest
_MOST_CHILDREN = 256
_SHARED = "/dev/shm"  # noqa: S108 - its size is read, nothing is written


class HostSamples:
    """The source ``host`` of a recording. Missing values are absent.

    Args:
        torch: The module, whose counters of pinned memory are read once a device is in use.
    """

    name = "host"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._last = 0.0
        self._next_pss = 0.0
        self._next_pinned = 0.0
        self._pinned_used = 0
        self._cgroup = cgroup.find()

    def take(self, when: str, devices: Sequence[int]) -> dict[str, int] | None:
        """Returns the sizes in bytes, or None if the last sample is too recent."""
        now = time.perf_counter()
        if when not in _ALWAYS and now - self._last < _PAUSE:
            return None
        self._last = now
        found = self._processes(when in _WITH_PSS)
        found.update(_shared())
        found.update(cgroup.use_of(self._cgroup) if self._cgroup else {})
        if devices:
            found.update(self._pinned(when))
        found.update(mps_memory(self._torch))
        return found

    def devices(self) -> Sequence[int]:
        """Returns nothing: this source knows no devices."""
        return ()

    def _processes(self, with_pss: bool) -> dict[str, int]:
        resident = _resident("self")
        if resident is None:
            return _peak_only()
        peak = _peak_resident()
        children = _below(os.getpid())
        known = [size for size in (_resident(str(pid)) for pid in children) if size is not None]
        found = {"rss_bytes": resident, "children_rss_bytes": sum(known), "num_children": len(known)}
        if peak is not None:
            found["peak_rss_bytes"] = max(peak, resident)
        began = time.perf_counter()
        if with_pss or began >= self._next_pss:
            sizes = [_pss(pid) for pid in ("self", *(str(pid) for pid in children))]
            took = time.perf_counter() - began
            self._next_pss = began + took / _PSS_SHARE
            if sizes[0] is not None:
                found["pss_bytes"] = sum(size for size in sizes if size is not None)
        return found

    def _pinned(self, when: str) -> dict[str, int]:
        read = getattr(getattr(self._torch, "_C", None), "_cuda_hostMemoryStats", None)
        stats = read() if read is not None else {}
        reserved, used = (stats.get(name, {}).get("current") for name in ("allocated_bytes", "active_bytes"))
        if reserved is None or used is None:
            return {}
        found = {"pinned_bytes": int(reserved), "pinned_used_bytes": int(used)}
        began = time.perf_counter()
        # A failure may hold the allocator's lock, which a tensor that ends here would need.
        if when != OOM and used >= _LEAST_PINNED and used != self._pinned_used and began >= self._next_pinned:
            found["pinned_tensors_bytes"], found["pinned_blocks_bytes"] = pinned_tensors(self._torch)
            self._pinned_used = used
            now = time.perf_counter()
            self._next_pinned = now + (now - began) / _PINNED_SHARE
        return found


def _resident(pid: str) -> int | None:
    """Returns the resident bytes of a process, or None if it has ended or there is no /proc."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _peak_resident() -> int | None:
    """Returns the highest resident bytes of this process so far, or None if the kernel does not count them."""
    for line in (cgroup.text_of("/proc/self/status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _pss(pid: str) -> int | None:
    """Returns the proportional bytes of a process: shared pages are divided among the processes that map them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            line = next(line for line in file if line.startswith(b"Pss:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _below(pid: int) -> list[int]:
    """Returns the processes below a process: workers of a DataLoader, and those that they started."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _MOST_CHILDREN:
        folder = f"/proc/{waiting.pop()}/task"
        try:
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
                found += children
                waiting += children
        except (OSError, ValueError):
            continue
    return found[:_MOST_CHILDREN]


def _shared() -> dict[str, int]:
    """Returns the bytes in shared memory files, in which DataLoader workers hand over batches."""
    try:
        stat = os.statvfs(_SHARED)
    except (OSError, AttributeError):
        return {}
    used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    return {"shm_used_bytes": used, "shm_total_bytes": stat.f_blocks * stat.f_frsize}


def _peak_only() -> dict[str, int]:
    """Returns the peak of the resident set, on systems without /proc."""
    try:
        import resource
    except ImportError:
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_rss_bytes": peak if sys.platform == "darwin" else peak * 1024}
