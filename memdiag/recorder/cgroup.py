"""The memory cgroup of this process: its limit, its use, and the processes that the kernel killed at the limit.

Both versions of cgroups are read. Like Kubernetes, use does not include file pages that the kernel can drop.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_NO_LIMIT = 1 << 60  # cgroups without a limit name a larger number


class Cgroup(NamedTuple):
    """A cgroup with a limit: its folder, that of the process's own cgroup, and the names of its files."""

    folder: str
    own: str
    use: str
    limit: str
    kills: str


_V1 = ("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control")
_V2 = ("/sys/fs/cgroup", "memory.current", "memory.max", "memory.events")


def find() -> Cgroup | None:
    """Returns the cgroup with the lowest limit among that of this process and its parents; None without a limit."""
    found: list[tuple[int, Cgroup]] = []
    for line in (text_of("/proc/self/cgroup") or "").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers in {"", "memory"}:
            root, *files = _V1 if controllers else _V2
            parts = [part for part in path.split("/") if part not in {"", ".."}]
            for depth in range(len(parts) + 1):
                place = Cgroup(os.path.join(root, *parts[:depth]), os.path.join(root, *parts), *files)
                limit = limit_of(place)
                if limit is not None:
                    found.append((limit, place))
    return min(found)[1] if found else None


def limit_of(cgroup: Cgroup) -> int | None:
    """Returns the limit in bytes; None: it has none."""
    return _number(os.path.join(cgroup.folder, cgroup.limit))


def use_of(cgroup: Cgroup) -> dict[str, int]:
    """Returns limit and use in bytes; empty if they cannot be read."""
    most, used = limit_of(cgroup), _number(os.path.join(cgroup.folder, cgroup.use))
    if most is None or used is None:
        return {}
    stat = _fields(os.path.join(cgroup.folder, "memory.stat"))
    droppable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return {"cgroup_used_bytes": max(used - droppable, 0), "cgroup_limit_bytes": most}


def kills_in(cgroup: Cgroup) -> int:
    """Returns how many processes of the cgroup the kernel has killed for want of memory, as far as it counts them.

    Version 1 counts a process in its own cgroup only, version 2 also in the parents.
    """
    return max(_fields(os.path.join(folder, cgroup.kills)).get("oom_kill", 0) for folder in (cgroup.folder, cgroup.own))


def _fields(path: str) -> dict[str, int]:
    pairs = (line.partition(" ") for line in (text_of(path) or "").splitlines())
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _number(path: str) -> int | None:
    text = (text_of(path) or "").strip()
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def text_of(path: str) -> str | None:
    """Returns the text of a file of the kernel; None: it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None
