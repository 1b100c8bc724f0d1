"""Turns the agent's messages into results, and computes rates, trends and distances from several messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memdiag.results.watch import WatchedDevice, WatchedSite, WatchReading

from .trend import trend

_KEPT = 120  # readings that a trend is computed from


class Readings:
    """The readings of one process.

    Args:
        hello: What the agent said about the process.
        mechanism: How memdiag entered it.
    """

    def __init__(self, hello: Mapping[str, Any], mechanism: str) -> None:
        self._hello = hello
        self._mechanism = mechanism
        self._steps: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._curves: dict[str, deque[tuple[float, int]]] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def add(self, message: Mapping[str, Any]) -> WatchReading:
        """Returns the reading in a message."""
        time, steps = float(message["time"]), message.get("steps")
        if steps is not None:
            self._steps.append((time, steps))
        host = message.get("host") or {}
        return WatchReading(
            time=time,
            pid=int(self._hello["pid"]),
            rank=self._hello.get("rank"),
            torch_version=str(self._hello.get("torch") or ""),
            mechanism=self._mechanism,
            steps=steps,
            steps_per_minute=self._rate(),
            history=bool(message.get("history")),
            is_late=bool(message.get("late")),
            devices=tuple(self._device(time, row) for row in message["devices"]),
            host_bytes=host.get("rss_bytes"),
            children_bytes=host.get("children_rss_bytes"),
            host_limit_bytes=host.get("cgroup_limit_bytes"),
            host_used_bytes=host.get("cgroup_used_bytes"),
            sites=_merged([self._site(row) for row in message.get("sites") or ()]),
            cost_seconds=float(message.get("cost_seconds") or 0.0),
        )

    def _rate(self) -> float | None:
        """Returns the steps per minute of the readings kept, or None before the first whole step."""
        if len(self._steps) < 2:
            return None
        (first, before), (last, after) = self._steps[0], self._steps[-1]
        return 60 * (after - before) / (last - first) if last > first and after > before else None

    def _device(self, time: float, row: Mapping[str, Any]) -> WatchedDevice:
        name = f"{row['backend']}:{row['index']}"
        reserved, active, free = row.get("reserved_bytes"), row.get("active_bytes"), row.get("free_bytes")
        allocated, limit = row.get("allocated_bytes"), int(row["limit_bytes"])
        curve = self._curves.setdefault(name, deque(maxlen=_KEPT))
        if allocated is not None:
            curve.append((time, allocated))
        slope = trend([at for at, _ in curve], [value for _, value in curve])
        distance = None
        if reserved is not None and active is not None and free is not None:
            distance = max(min(free, limit - reserved), 0) + reserved - active
        return WatchedDevice(
            device=name,
            name=str(row["name"]),
            total_bytes=int(row["total_bytes"]),
            limit_bytes=limit,
            free_bytes=free,
            reserved_bytes=reserved,
            active_bytes=active,
            allocated_bytes=allocated,
            requested_bytes=row.get("requested_bytes"),
            peak_reserved_bytes=row.get("peak_reserved_bytes"),
            peak_allocated_bytes=row.get("peak_allocated_bytes"),
            num_retries=row.get("num_retries"),
            num_ooms=row.get("num_ooms"),
            growth_bytes_per_minute=None if slope is None else round(60 * slope),
            distance_bytes=distance,
        )

    def _site(self, row: Mapping[str, Any]) -> WatchedSite:
        frames = tuple((str(file), int(line), str(name)) for file, line, name in row["stack"])
        if frames not in self._names:
            self._names[frames] = _label(frames)
        return WatchedSite(
            device=f"{row['backend']}:{row['index']}",
            bytes=int(row["bytes"]),
            num_blocks=int(row["num_blocks"]),
            name=self._names[frames],
            stack=tuple(f"{file}:{line} {name}" for file, line, name in frames),
        )


def _merged(sites: list[WatchedSite]) -> tuple[WatchedSite, ...]:
    """Returns the sites, largest first, with one for each name and device: the stack is that of its largest part."""
    found: dict[tuple[str, str], WatchedSite] = {}
    for site in sites:
        known = found.get((site.device, site.name))
        if known is not None:
            size, count = known.bytes + site.bytes, known.num_blocks + site.num_blocks
            site = replace(known, bytes=size, num_blocks=count)
        found[site.device, site.name] = site
    return tuple(sorted(found.values(), key=lambda site: -site.bytes))


def _label(frames: tuple[tuple[str, int, str], ...]) -> str:
    """Returns the short name of a stack, as reports name it."""
    if not frames:
        return ""
    from memdiag.trace.stacks import Frame, Stacks  # imports numpy, which the first screen does not need

    stacks, _ = Stacks.from_lists([[Frame(*frame) for frame in frames]])
    return stacks.label(0)
