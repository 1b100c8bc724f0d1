"""What a built trace says about its own input: what did not fit together, and what is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from memdiag.findings import Note
from memdiag.trace.model import DeviceTrace
from memdiag.trace.raw import RawDevice
from memdiag.units import format_bytes, plural

_DISAGREE = ("final_block_already_freed", "final_state_differs", "segment_contradictions", "segment_reopened", "outside_segments",
             "block_too_large")  # fmt: skip
_FREES = ("double_free", "unmatched_free", "alloc_on_live", "overlap", "segment_gone_under_block", "gap")


def notes_on(devices: Sequence[DeviceTrace], raws: Sequence[RawDevice]) -> list[Note]:
    """Returns notes on the input, in the order of devices."""
    notes = []
    many = len(devices) > 1
    for device, raw in zip(devices, raws, strict=True):
        where = f"device {device.device}: " if many else ""
        odd = device.anomalies
        if any(name in odd for name in _DISAGREE):
            notes.append(Note("MD901", f"{where}trace and segments of the file disagree ({_listed(odd, _DISAGREE)}); "
                              "the figures at the end are those of its segments"))  # fmt: skip
        if any(name in odd for name in _FREES):
            notes.append(Note("MD902", f"{where}allocations and frees do not match ({_listed(odd, _FREES)}); what cannot be is left out"))
        if not device.num_events:
            notes.append(Note("MD906", f"{where}no trace, only the last state: nothing is known of peaks, lifetimes and growth"))
        elif device.start["active"] > 0:
            before = int((device.tensors.alloc_at < 0).sum())
            size = format_bytes(device.start["active"])
            unsure = device.num_uncertain_blocks
            sizes = f"; {plural(unsure, 'block')} of them may be up to 1 MiB larger than is counted" if unsure else ""
            notes.append(Note("MD907", f"{where}the trace begins with {plural(before, 'tensor')} ({size}) already there: "
                              f"recording began late, or older entries were overwritten{sizes}"))  # fmt: skip
        if raw.time_us is not None and len(raw.time_us) > 1 and (np.diff(raw.time_us) < 0).any():
            back = int((np.diff(raw.time_us) < 0).sum())
            notes.append(Note("MD909", f"{where}{plural(back, 'entry goes', 'entries go')} back in time; the order of the file is used"))
    return notes


def _listed(counts: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in names if counts.get(name))
