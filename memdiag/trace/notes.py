"""Notes on the input of a trace: contradictions and missing parts. The texts are in ``messages/notes.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from memdiag.results.finding import Note
from memdiag.text import Phrase, joined, phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.raw import RawDevice
from memdiag.units import format_bytes

_DISAGREE = (
    "final_block_already_freed",
    "final_state_differs",
    "segment_contradictions",
    "segment_reopened",
    "outside_segments",
    "block_too_large",
)
_FREES = ("double_free", "unmatched_free", "alloc_on_live", "overlap", "segment_gone_under_block", "gap")


def notes_on(devices: Sequence[DeviceTrace], raws: Sequence[RawDevice]) -> list[Note]:
    """Returns notes on the input, in the order of devices."""
    notes = []
    for device, raw in zip(devices, raws, strict=True):
        for code, text in _on_device(device, raw):
            own = phrase("notes.device", device=str(device.device), text=text) if len(devices) > 1 else text
            notes.append(Note(code, own))
    return notes


def _on_device(device: DeviceTrace, raw: RawDevice) -> Iterator[tuple[str, Phrase]]:
    """Yields the code and text of each note on one device."""
    odd = device.anomalies
    if any(name in odd for name in _DISAGREE):
        yield "MD901", phrase("notes.disagree", kinds=_listed(odd, _DISAGREE))
    if any(name in odd for name in _FREES):
        yield "MD902", phrase("notes.unmatched", kinds=_listed(odd, _FREES))
    if not device.num_events:
        yield "MD906", phrase("notes.no-history")
    elif device.start["active"] > 0:
        values = {"count": int((device.tensors.alloc_at < 0).sum()), "bytes": format_bytes(device.start["active"])}
        unsure = device.num_uncertain_blocks
        yield (
            "MD907",
            phrase("notes.begins-late.unsure", **values, unsure=unsure)
            if unsure
            else phrase("notes.begins-late", **values),
        )
    if raw.time_us is not None and len(raw.time_us) > 1 and (np.diff(raw.time_us) < 0).any():
        yield "MD909", phrase("notes.back", count=int((np.diff(raw.time_us) < 0).sum()))


def _listed(counts: Mapping[str, int], names: Sequence[str]) -> Phrase:
    found = [
        phrase("anomalies.one", what=phrase(f"anomalies.{name}"), count=counts[name])
        for name in names
        if counts.get(name)
    ]
    return joined(found, ", ")
