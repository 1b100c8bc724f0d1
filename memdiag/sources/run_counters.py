"""Counters of an accelerator whose allocator keeps no history, from the samples of a recording.

The trace has curves and no tensors. An allocator that counts its own peak also knows peaks between two samples: each
new one becomes a row of its own, right after the first of the two, since it belongs to the phase that began there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from memdiag.sources.run_samples import count, rows_in, samples_of
from memdiag.trace import schema
from memdiag.trace.raw import RawDevice
from memdiag.trace.table import Array

_MOST_BYTES = 1 << 50
_CURVES = ("reserved", "allocated")


def with_counters(raw: RawDevice, own: Mapping[str, Any]) -> RawDevice | None:
    """Returns a device with the curves of its counters, or None if the recording has none of it.

    Args:
        raw: The device as the snapshot has it, without entries.
        own: The recorder's key of the file.
    """
    rows = list(_with_peaks(own, raw.device)) if own.get("counters") is True else []
    if not rows:
        return None
    times, *curves = np.array(rows, np.int64).T
    unknown: Array = np.full(len(rows), -1, np.int64)
    return RawDevice(
        device=raw.device,
        action=np.full(len(rows), schema.UNKNOWN, np.int8),
        addr=unknown,
        size=np.zeros(len(rows), np.int64),
        time_us=times,
        has_addresses=False,
        curves={**dict(zip(_CURVES, curves, strict=True)), "active": unknown, "requested": unknown},
        capacity_bytes=raw.capacity_bytes,
        card=raw.card,
        samples=raw.samples,
    )


def _with_peaks(own: Mapping[str, Any], device: int) -> Iterator[tuple[int, ...]]:
    """Yields time, reserved and allocated bytes (-1: unknown) of each sample, and of new peaks before it."""
    highest = dict.fromkeys(_CURVES, 0)
    before = -1
    for sample in samples_of(own):
        row = next((row for row in rows_in(sample.sections.get("counters")) if row.get("device") == device), None)
        if row is None:
            continue
        now = {name: _bytes(row, f"{name}_bytes") for name in _CURVES}
        peaks = {name: _bytes(row, f"{name}_peak_bytes") for name in _CURVES}
        if any(peaks[name] > max(highest[name], now[name]) for name in _CURVES):
            time = sample.t_us if before < 0 else min(before + 1, sample.t_us)
            yield (time, *(max(now[name], peaks[name]) for name in _CURVES))
        yield (sample.t_us, *now.values())
        before = sample.t_us
        highest = {name: max(highest[name], now[name], peaks[name]) for name in _CURVES}


def _bytes(row: Mapping[str, Any], key: str) -> int:
    size = count(row.get(key), _MOST_BYTES)
    return -1 if size is None else size
