"""The facts of a report on host memory."""

from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.devices import top_sites
from memdiag.results.host import HostMoment, HostReport, PinnedMemory
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.moments import has_history
from memdiag.trace.table import Table

_MOST = 200  # samples of a report


def host_report(trace: Trace, top: int) -> HostReport | None:
    """Returns the facts on host memory, or None if the file has none.

    Args:
        top: Number of call sites.
    """
    pinned, timeline = _pinned(trace, top), _timeline(trace)
    return None if pinned is None and not timeline else HostReport(pinned, timeline)


def _timeline(trace: Trace) -> tuple[HostMoment, ...]:
    """Returns the samples; of many, the one with the most memory in each stretch of time, the first and the last."""
    samples = trace.host_samples
    rows = np.arange(len(samples))
    if len(rows) > _MOST:
        total = np.maximum(samples.rss, 0) + np.maximum(samples.children_rss, 0)
        parts = np.array_split(rows, _MOST - 2)
        rows = np.unique([0, *(int(part[np.argmax(total[part])]) for part in parts), len(rows) - 1])
    return tuple(_moment(samples, int(row)) for row in rows)


def _moment(samples: Table, row: int) -> HostMoment:
    said = {name: int(samples[name][row]) for name in schema.HOST_SAMPLES}
    time, when, step = said.pop("time_us"), said.pop("when"), said.pop("step")
    sizes = {
        name if name == "num_children" else f"{name}_bytes": value if value >= 0 else None
        for name, value in said.items()
    }
    return HostMoment(time, schema.OCCASIONS[when], step, **sizes)


def _pinned(trace: Trace, top: int) -> PinnedMemory | None:
    host = trace.host
    if host is None:
        return None
    known = has_history(host)
    at = host.peak("allocated") if known else host.num_events - 1
    view = DeviceView(trace, host, at, "allocated")
    time = int(host.events.time_us[at]) if at >= 0 else -1
    end = host.end
    return PinnedMemory(
        peak_reserved_bytes=max(int(host.usage.reserved.max()), host.start["reserved"]) if known else None,
        peak_allocated_bytes=host.usage_at(at)["allocated"] if known else None,
        peak_at_us=time if time >= 0 else None,
        end_reserved_bytes=end["reserved"],
        end_allocated_bytes=end["allocated"],
        num_blocks=len(host.blocks),
        top_sites=top_sites(view, host.live(at), top),
    )
