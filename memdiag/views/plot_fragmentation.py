"""Composition of reserved memory over a run: bytes requested by tensors, and the split of the rest."""

from __future__ import annotations

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.results.plots import FragmentationPlot
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.views.plot_frame import Ask, frame_of, mark_of, need_addresses, need_events, numbers, settled, thin
from memdiag.views.split import PARTS, split_over_time


def fragmentation_of(trace: Trace, device: DeviceTrace, ask: Ask) -> FragmentationPlot:
    """Returns the split of a device's memory over its run (docs/fragmentation.md).

    Raises:
        MemdiagError: The file has no events, or no addresses.
    """
    need_events(trace, device, "fragmentation")
    need_addresses(trace, device, "fragmentation")
    usage = device.usage.take(settled(device))
    known = (usage.cache >= 0) & (usage.reserved >= 0)
    if not known.any():
        raise MemdiagError(phrase("plots.no-request", path=trace.path), phrase("plots.no-request.hint"))
    whole = split_over_time(usage)
    whole.update({name: np.where(known, whole[name], 0) for name in ("stranded", "foreign", "cache")})
    at = thin([usage.reserved, usage.requested, *whole.values()], ask.columns)
    moment = mark_of(device, ask.at, "reserved")
    row = max(moment.at, 0)
    notes = (
        f"amounts: at the moment marked ({moment.title})",
        "cache, stranded, foreign: free memory as the next request that opens a segment sees it",
    )
    return FragmentationPlot(
        frame=frame_of(trace, device, ask.columns, notes),
        at=numbers(at),
        requested=numbers(usage.requested[at]),
        parts={name: numbers(whole[name][at]) for name in PARTS},
        moment=moment,
        at_moment={"requested": int(usage.requested[row]), **{name: int(whole[name][row]) for name in PARTS}},
    )
