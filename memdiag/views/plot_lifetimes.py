"""Live bytes over a run, by the lifetime of their tensors."""

from __future__ import annotations

import numpy as np

from memdiag import vocabulary
from memdiag.errors import MemdiagError
from memdiag.results.plots import LifetimeLayer, LifetimesPlot
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import LIFETIMES
from memdiag.trace.table import Array
from memdiag.views.plot_frame import Ask, frame_of, mark_of, need_events, numbers, thin
from memdiag.views.timeline import by_class

ORDER: tuple[str, ...] = tuple(vocabulary.STYLES["lifetime"])


def lifetimes_of(trace: Trace, device: DeviceTrace, ask: Ask) -> LifetimesPlot:
    """Returns live bytes by lifetime.

    Raises:
        MemdiagError: The file has no events, or no lifetimes.
    """
    need_events(trace, device, "lifetimes")
    if not device.tensors.lifetime.any():
        raise MemdiagError(phrase("plots.no-lifetimes", path=trace.path), phrase("plots.no-lifetimes.hint"))
    codes = [code for code in (LIFETIMES.index(name) for name in ORDER) if (device.tensors.lifetime == code).any()]
    at = _moments(device, codes, ask.columns)
    moment = mark_of(device, ask.at, "active")
    at = np.unique(np.append(at, max(moment.at, 0)))
    amounts = by_class(device, at, "lifetime", len(LIFETIMES))
    there = by_class(device, np.array([moment.at]), "lifetime", len(LIFETIMES))[:, 0]
    layers = tuple(
        LifetimeLayer(
            key,
            vocabulary.name("lifetime", key),
            vocabulary.meaning("lifetime", key),
            numbers(amounts[code]),
            int(there[code]),
        )
        for code, key in ((code, LIFETIMES[code]) for code in codes)
        if amounts[code].any()
    )
    notes = [phrase("plots.note.blocks")]
    if trace.bases.get("lifetime", "none") == "none":
        notes.insert(0, phrase("plots.note.no-phases"))
    return LifetimesPlot(frame_of(trace, device, ask.columns, notes), numbers(at), layers, moment)


def _moments(device: DeviceTrace, codes: list[int], columns: int) -> Array:
    """Returns the events that draw every layer and their sum; only one layer at a time is completely in memory."""
    n, tensors = device.num_events, device.tensors
    if n <= 4 * columns:
        return np.arange(n)
    chosen = [thin([device.usage.active], columns)]
    for code in codes:
        rows = np.flatnonzero(tensors.lifetime == code)
        size = tensors.block_bytes[rows].astype(np.float64)
        born, gone = np.clip(tensors.alloc_at[rows], 0, n), np.clip(tensors.free_completed_at[rows], 0, n)
        chosen.append(thin([np.cumsum(np.bincount(born, size, n + 1) - np.bincount(gone, size, n + 1))[:n]], columns))
    return np.unique(np.concatenate(chosen))
