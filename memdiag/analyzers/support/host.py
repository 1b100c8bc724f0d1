"""The facts of a report on host memory."""

from __future__ import annotations

from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.devices import top_sites
from memdiag.results.host import HostReport, PinnedMemory
from memdiag.trace.model import Trace
from memdiag.trace.moments import has_history


def host_report(trace: Trace, top: int) -> HostReport | None:
    """Returns the facts on host memory, or None if the file has none.

    Args:
        top: Number of call sites.
    """
    pinned = _pinned(trace, top)
    return None if pinned is None else HostReport(pinned)


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
