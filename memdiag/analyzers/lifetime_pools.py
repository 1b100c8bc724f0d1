"""Suggests lifetime-segregated pools: MindSpeed's allocator keeps long-lived and short-lived tensors apart.

Some versions can enable it.

Its authors recommend it if reserved - allocated is above 1 GiB when memory runs out. That rule is only a hint: replays
of the trace (``pools_judged``) compare the pools with expandable segments, which exclude them, and with the lower bound
of every allocator. The texts are in ``messages/pools.json``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.diagnosis.thresholds import POOLS_GAP
from memdiag.results.finding import Evidence, Finding
from memdiag.sizes.npu import HCCL_BUFFER_MB
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.units import MIB, format_bytes

CODES = {"MD114": "effect of lifetime-segregated pools on this program (NPU)"}
_MOST_BUFFER_MB = 1 << 20


def analyze(trace: Trace, context: Context) -> Iterator[Finding]:
    """Yields the hint (MD114) for NPUs to which the authors' rule of thumb applies."""
    if trace.backend != "npu":
        return
    for view in context.views(trace):
        gap, where = _widest(view)
        if gap < POOLS_GAP:
            continue
        yield Finding(
            "MD114",
            phrase("pools.asked", bytes=format_bytes(gap)),
            "info",
            view.device.device,
            (Evidence(phrase("pools.gap"), gap, "bytes", where), buffers(trace)),
            AllocatorSettings.of(trace).offers("lifetime-pools"),
            weight_bytes=gap,
        )


def _widest(view: DeviceView) -> tuple[int, str]:
    """Returns the largest reserved - allocated, at failures if there are any, else at the peak, and its event."""
    usage, events = view.device.usage, view.device.events
    at = np.flatnonzero(events.action == schema.OOM)
    if not len(at):
        at = np.array([view.device.peak("reserved")] if view.device.num_events else [], np.int64)
    known = at[(usage.reserved[at] >= 0) & (usage.allocated[at] >= 0)]
    if not len(known):
        return 0, ""
    gaps = usage.reserved[known] - usage.allocated[known]
    widest = int(np.argmax(gaps))
    return int(gaps[widest]), phrase("places.event", at=int(known[widest]))


def buffer_bytes(trace: Trace) -> int:
    """Returns the bytes of HCCL's two buffers for each communicator."""
    text = str(trace.settings.get("HCCL_BUFFSIZE", ""))
    size = int(text) if text.isdigit() and 0 < int(text) <= _MOST_BUFFER_MB else HCCL_BUFFER_MB
    return 2 * size * MIB


def buffers(trace: Trace) -> Evidence:
    """Returns the memory that HCCL needs in addition to PyTorch's."""
    is_known = "HCCL_BUFFSIZE" in trace.settings
    where = phrase("pools.hccl.recorded") if is_known else phrase("pools.hccl.assumed", size=HCCL_BUFFER_MB)
    return Evidence(phrase("pools.hccl"), buffer_bytes(trace), "bytes", where)
