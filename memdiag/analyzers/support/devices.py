"""The facts of a report on one device: bytes at its moment, at the peaks and at the end, their owners, and the curves.

Lists of owners count the blocks of tensors that are live at the moment of the report, and of tensors that are freed but
wait for a stream. Each list therefore adds up to the active bytes of that moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memdiag.analyzers.churn import count_retries
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.cards import card_memory_of
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.ledger import ledger_of
from memdiag.analyzers.support.moments import fragmentation_at
from memdiag.analyzers.support.names import by_module, by_text, names_of
from memdiag.analyzers.support.sites import by_category, by_place, sums
from memdiag.results.report import DeviceReport, Peak, ReportMoment, Timeline, Usage
from memdiag.results.sites import Site
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.moments import has_history
from memdiag.trace.table import Array, highest_in_parts

BUCKETS = 400  # of the curves that a report draws
_KINDS = ("reserved", "allocated", "active", "requested")


def describe(view: DeviceView, context: Context) -> DeviceReport:
    """Returns the facts on one device."""
    device = view.device
    known = bool(len(device.tensors)) or device.usage_at(view.at)["active"] == 0
    rows = view.live
    category, lifetime = device.tensors.category[rows], device.tensors.lifetime[rows]
    size = device.tensors.block_bytes[rows]
    fragmentation = fragmentation_at(device, view.at, view.trace.layout.large_segment)
    return DeviceReport(
        device=device.device,
        end=_usage(device.end),
        peak=peak_of(device, "reserved"),
        peak_allocated=peak_of(device, "allocated"),
        fragmentation=fragmentation,
        counts=_counts(view),
        by_category=by_category(view, rows) if known and category.any() else None,
        by_lifetime=sums(schema.LIFETIMES, lifetime, size) if known and lifetime.any() else None,
        top_sites=top_sites(view, rows, context.top) if known and len(view.trace.stacks) else None,
        timeline=_timeline(device),
        moment=moment_of(device, view.at, view.kind, fragmentation.lost_bytes),
        by_module=by_module(view, rows, context.top) if known else None,
        card=replace(card_memory_of(device), library_bytes=_library_bytes(view)),
        card_timeline=ledger_of(device),
        by_label=by_text(view, device.tensors.label[rows], rows, context.top),
        by_compiled_region=by_text(view, _regions(device, rows), rows, context.top),
    )


def _regions(device: DeviceTrace, rows: Array) -> Array:
    """Returns the region of compiled code in which each tensor was allocated, an index into strings; -1: none."""
    born = device.tensors.alloc_at[rows]
    if not device.num_events:
        return np.full(len(rows), -1)
    return np.where(born >= 0, device.events.compile_context[np.maximum(born, 0)], -1)


def _library_bytes(view: DeviceView) -> int | None:
    """Returns the memory that communication libraries hold on the device according to their logs, or None."""
    held = [memory.live_bytes for memory in view.trace.libraries if memory.device == view.device.device]
    return sum(held) if held else None


def moment_of(device: DeviceTrace, at: int, kind: str, lost_bytes: int | None) -> ReportMoment:
    """Returns the moment after event ``at`` as reports state it."""
    return ReportMoment(**_event_facts(device, at), kind=kind, lost_bytes=lost_bytes)


def peak_of(device: DeviceTrace, curve: str) -> Peak:
    """Returns the highest point of a curve ("reserved" or "allocated"), or no values without a trace or that curve."""
    if not has_history(device) or max(int(device.usage[curve].max()), device.start[curve]) < 0:
        return Peak(None, None, None, None)
    return Peak(**_event_facts(device, device.peak(curve)))


def _event_facts(device: DeviceTrace, at: int) -> dict[str, Any]:
    """Returns the fields of a ``Peak``: the bytes after an event, its time, phase and step; None if unknown."""
    time, phase, step = (int(device.events[name][at]) if at >= 0 else -1 for name in ("time_us", "phase", "step"))
    return {
        **_known_bytes(device.usage_at(at)),
        "at_event": at if device.num_events else None,
        "at_us": time if time >= 0 else None,
        "phase": schema.PHASES[phase] if phase > 0 else None,
        "step": step if step >= 0 else None,
    }


def _known_bytes(values: dict[str, int]) -> dict[str, int | None]:
    return {f"{name}_bytes": values[name] if values[name] >= 0 else None for name in _KINDS}


def _usage(values: dict[str, int]) -> Usage:
    return Usage(**_known_bytes(values))


def _counts(view: DeviceView) -> dict[str, int | None]:
    """Returns driver calls, retries and failures; None if the file does not record them.

    A retry is a request for which the allocator released cached segments. A request that finally fails was retried too,
    even without any cached memory. (Releases by garbage_collection_threshold and max_split_size look the same in a
    trace, and are counted.)
    """
    device = view.device
    names = ("num_segments_allocated", "num_segments_freed", "num_retries", "num_ooms")
    if not device.has_addresses or not has_history(device):
        return dict.fromkeys(names)
    count = np.bincount(device.events.action, minlength=len(schema.ACTIONS))
    return {
        "num_segments_allocated": int(count[schema.SEGMENT_ALLOC] + count[schema.SEGMENT_MAP]),
        "num_segments_freed": int(count[schema.SEGMENT_FREE] + count[schema.SEGMENT_UNMAP]),
        "num_retries": count_retries(view, AllocatorSettings.of(view.trace)),
        "num_ooms": int(count[schema.OOM]),
    }


def top_sites(view: DeviceView, rows: Array, top: int) -> tuple[Site, ...]:
    """Returns the call sites that hold most of the tensors ``rows``."""
    stacks = view.trace.stacks
    return tuple(
        Site(
            place.bytes,
            place.num_tensors,
            tuple(str(frame) for frame in stacks[place.stack]),
            place.label,
            names_of(view, place.rows),
        )
        for place in by_place(view, rows)[:top]
    )


def _timeline(device: DeviceTrace) -> Timeline | None:
    """Returns the curves, with the highest value in each bucket; an unknown curve is empty."""
    n = device.num_events
    if not n:
        return None
    buckets = min(BUCKETS, n)

    def highest(name: str) -> tuple[int, ...]:
        values = highest_in_parts(device.usage[name], buckets)
        return tuple(values.tolist()) if (values >= 0).any() else ()

    return Timeline(n / buckets, reserved=highest("reserved"), active=highest("active"), allocated=highest("allocated"))
