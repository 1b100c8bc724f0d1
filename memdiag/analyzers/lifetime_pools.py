"""Would pools by lifetime pay here? MindSpeed's allocator for long-lived and short-lived tensors, which some versions can switch on.

Its authors advise it where reserved less allocated is more than 1 GiB when memory runs out. That is a question, not an answer: replays of
the trace answer it (``pools_judged``), against expandable segments, which exclude it, and against the bound of any allocator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.analyzers.context import Context, DeviceView
from memdiag.findings import Evidence, Finding, Fix
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.units import GIB, MIB, format_bytes

CODES = {"MD114": "whether pools by lifetime pay for this program (NPU)"}
GAP = GIB  # the authors' rule of thumb
BUFFER_MB = 200  # HCCL_BUFFSIZE where nothing is set
_MOST_BUFFER_MB = 1 << 20


def analyze(trace: Trace, context: Context) -> Iterator[Finding]:
    """Asks the question (MD114) on NPUs where the authors' rule of thumb says so."""
    if trace.backend != "npu":
        return
    for view in context.views(trace):
        gap, where = _widest(view)
        if gap < GAP:
            continue
        yield Finding(
            "MD114",
            f"{format_bytes(gap)} are reserved and not allocated: MindSpeed's pools by lifetime were made for that",
            "info",
            view.device.device,
            (Evidence("reserved and not allocated", gap, "bytes", where), buffers(trace)),
            (switch(),),
            weight_bytes=gap,
        )


def _widest(view: DeviceView) -> tuple[int, str]:
    """Returns the most bytes reserved and not allocated, at failures if there are any, else at the peak; and where that is."""
    usage, events = view.device.usage, view.device.events
    at = np.flatnonzero(events.action == schema.OOM)
    if not len(at):
        at = np.array([view.device.peak("reserved")] if view.device.num_events else [], np.int64)
    known = at[(usage.reserved[at] >= 0) & (usage.allocated[at] >= 0)]
    if not len(known):
        return 0, ""
    gaps = usage.reserved[known] - usage.allocated[known]
    widest = int(np.argmax(gaps))
    return int(gaps[widest]), f"event {int(known[widest]):,}"


def buffer_bytes(trace: Trace) -> int:
    """Returns the bytes that HCCL takes for each communicator: two buffers."""
    text = str(trace.settings.get("HCCL_BUFFSIZE", ""))
    size = int(text) if text.isdigit() and 0 < int(text) <= _MOST_BUFFER_MB else BUFFER_MB
    return 2 * size * MIB


def buffers(trace: Trace) -> Evidence:
    """Returns what HCCL needs beside PyTorch's memory."""
    where = "HCCL_BUFFSIZE as recorded" if "HCCL_BUFFSIZE" in trace.settings else f"HCCL_BUFFSIZE not recorded: {BUFFER_MB} MB"
    return Evidence("HCCL needs, for each communicator, 2 x HCCL_BUFFSIZE", buffer_bytes(trace), "bytes", where)


def switch() -> Fix:
    """Returns how the pools are switched on, where they can be."""
    return Fix(
        "Give long-lived tensors pools of their own",
        "flag",
        "--memory-fragmentation",
        "MindSpeed 1.0.RC2 to core_r0.9, legacy (not mcore) models; MEMORY_FRAGMENTATION=1 in AscendSpeed and 1.0.RC1; gone since mid 2025",
        "excludes expandable segments, adaptive recomputation and memory optimization, smart swap, the fused rotary embedding; memory "
        "snapshots and record_stream do not work with it",
    )


def share(fraction: float) -> Fix:
    """Returns how HCCL's part is kept free, which the pools would take."""
    return Fix(
        "With these pools: leave HCCL its part of the device",
        "code",
        f"torch_npu.npu.set_per_process_memory_fraction({fraction:.2f})",
        "after set_device() and before the first tensor on the device: in Megatron and MindSpeed, at the top of pretrain()",
        "HCCL cannot make PyTorch give back what it has cached: it fails with an out-of-memory error of its own",
    )
