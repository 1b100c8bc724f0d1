"""All data that the HTML report draws, in a few megabytes for any trace: moments, their tensors, and curves.

A page cannot hold a million events. It gets the curves in some thousand points, and some hundred *instants* that can be
inspected in full. Every tensor that is live at one of them is in the page, so an instant is shown exactly. A tensor
that lives only between two instants is included only in the curves and in the sums by call stack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.moments import fragmentation_at, look, reference_at
from memdiag.analyzers.support.pinning import pinned
from memdiag.results.picture import Picture
from memdiag.results.report import Report
from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, failed_allocations, peak_event
from memdiag.trace.table import Array
from memdiag.views import bands, flame, heap, timeline
from memdiag.views.columns import pack
from memdiag.views.log_rows import event_log
from memdiag.views.stacks import StackSymbols

MOST_POINTS = 40_000  # of the curves
MOST_INSTANTS = 2400
MOST_TENSORS = 300_000  # in the page; with more, there are fewer instants
MOST_STACKS = 1500  # by each measure of the flame graph
_MOST_SPLITS = 50  # computed individually: a trace in which no request reserved a segment is small, or has no requests
_SPLIT = ("cache", "stranded", "foreign")
_USAGE = ("reserved", "allocated", "active", "requested")


def build_picture(
    trace: Trace, report: Report, *, at: str | int = DEFAULT, simulated: tuple[dict[str, Any], ...] = ()
) -> Picture:
    """Returns the picture of a trace and its report; ``at`` is the moment of the report, as for ``build_report``."""
    symbols = StackSymbols(trace)
    shown = {device.device for device in report.devices}
    views = [view for view in Context(at).views(trace) if view.device.device in shown]
    devices = tuple(_device(view, symbols) for view in views)
    stacks = tuple(tuple(stack) for stack in symbols.stacks)
    return Picture(
        report,
        devices,
        tuple(symbols.frames),
        stacks,
        tuple(symbols.strings),
        tuple(symbols.modules),
        tuple(symbols.labels),
        tuple(symbols.kinds),
        tuple(symbols.sites),
        _codes(),
        simulated,
    )


def _codes() -> dict[str, list[str]]:
    """Returns the lists that coded columns refer to."""
    return {
        "categories": list(schema.CATEGORIES),
        "lifetimes": list(schema.LIFETIMES),
        "phases": list(schema.PHASES),
        "causes": list(heap.CAUSES),
        "actions": list(schema.ACTIONS),
    }


def _device(view: DeviceView, symbols: StackSymbols) -> dict[str, Any]:
    device, trace = view.device, view.trace
    most = min(bands.MOST_BANDS, MOST_TENSORS // 20)
    stacked = [each for each in (bands.of_run(device, most), bands.of_worst_step(device, most)) if each is not None]
    at = _instants(device, view.at, np.unique(np.concatenate([each.rows for each in stacked])))
    rows = _there(device, at)
    base = _base(device)
    stacks = flame.by_stack(device, view.at)
    ooms = failed_allocations(device)
    return {
        "device": device.device,
        "num_events": device.num_events,
        "has_addresses": device.has_addresses,
        "base": base,
        "has_time": flame.has_times(device),
        "capacity_bytes": device.capacity_bytes,
        "page_small": SMALL_SEGMENT,
        "page_large": trace.layout.large_segment,
        "curve": _usage(device, timeline.pick(device, MOST_POINTS)),
        "instants": _instant_columns(device, at, trace.layout.large_segment),
        "categories_at": _stacked(device, at),
        "chosen_instant": _row(at, view.at),
        "peak_instant": _row(at, peak_event(device)),
        "peak_allocated_instant": _row(at, device.peak("allocated")),
        "phase_spans": pack(timeline.phase_spans(device)),
        "steps": pack(timeline.step_starts(device)),
        "retries": timeline.retries(device).tolist(),
        "ooms": [
            {"event": event, "size": int(device.events.size[event]), "instant": _row(at, event)}
            for event in ooms.tolist()
        ],
        "groups": [_group(device, row) for row in range(len(device.groups))],
        "tensors": _tensors(device, rows, base, symbols),
        "bands": [_bands(each, rows) for each in stacked],
        "envelope": pack(bands.step_envelope(device)),
        "log": pack(event_log(device, rows, symbols)),
        "regions": _regions(device, at, base),
        "pins": _pins(view, trace, rows),
        "flame": _flame(stacks, symbols),
    }


def _instants(device: DeviceTrace, chosen: int, large: Array) -> Array:
    """Returns as many instants as leave room for their tensors.

    Each of the ``large`` tensors (rows) is live at one of them at least.
    """
    born, gone = device.tensors.alloc_at[large], device.tensors.free_completed_at[large]
    most = MOST_INSTANTS
    while True:
        at = timeline.instants(device, most, (chosen,))
        missing = np.searchsorted(at, born) == np.searchsorted(at, gone)
        at = np.union1d(at, bands.stabbing(born[missing], gone[missing]))
        if most < 20 or len(_there(device, at)) <= MOST_TENSORS:
            return at
        most = most * 2 // 3


def _there(device: DeviceTrace, at: Array) -> Array:
    """Returns the tensors that are live at one of the instants ``at`` at least, in order of allocation."""
    tensors = device.tensors
    after = np.searchsorted(at, tensors.alloc_at)  # the first instant at or after its allocation
    there = (after < len(at)) & (at[np.minimum(after, len(at) - 1)] < tensors.free_completed_at)
    if device.has_addresses:
        there &= tensors.group >= 0
    return np.flatnonzero(there)


def _row(at: Array, event: int) -> int:
    """Returns the instant at or directly after an event."""
    return min(int(np.searchsorted(at, event)), len(at) - 1)


def _of_events(device: DeviceTrace, at: Array, values: Array, before: int) -> Array:
    """Returns values of events, with ``before`` for -1."""
    if not device.num_events:
        return np.full(len(at), before, np.int64)
    return np.where(at < 0, before, values[np.maximum(at, 0)].astype(np.int64))


def _usage(device: DeviceTrace, at: Array) -> dict[str, Any]:
    return pack({"event": at, "time_us": _times(device, at), **_curves(device, at)})


def _curves(device: DeviceTrace, at: Array) -> dict[str, Array | None]:
    """Returns bytes at events; None for a curve that the file does not have."""
    known = {name: bool((device.usage[name] >= 0).any()) or device.start[name] >= 0 for name in _USAGE}
    return {
        name: _of_events(device, at, device.usage[name], device.start[name]) if known[name] else None for name in _USAGE
    }


def _times(device: DeviceTrace, at: Array) -> Array | None:
    return (
        _of_events(device, at, device.events.time_us, int(device.events.time_us[0]))
        if flame.has_times(device)
        else None
    )


def _instant_columns(device: DeviceTrace, at: Array, large_page: int) -> dict[str, Any]:
    columns = _curves(device, at)
    parts = {name: _of_events(device, at, device.usage[name], -1) for name in _SPLIT}
    reference = _of_events(device, at, device.usage.reference, -1)
    row = np.maximum(reference, 0)
    table = device.references
    size = np.where(reference >= 0, table.size[row], -1) if len(table) else np.full(len(at), -1)
    group = np.where(reference >= 0, table.group[row], -1) if len(table) else np.full(len(at), -1)
    if device.has_addresses:
        # Before the first event, or without any request in the trace, the split refers to the largest tensor.
        for unknown in np.flatnonzero(parts["cache"] < 0)[:_MOST_SPLITS].tolist():
            split = fragmentation_at(device, int(at[unknown]), large_page)
            _, request, of_group = reference_at(device, int(at[unknown]))
            if request is not None and split.cache_bytes is not None:
                size[unknown], group[unknown] = request, of_group
                for name in _SPLIT:
                    parts[name][unknown] = getattr(split, f"{name}_bytes")
    return pack(
        {
            "event": at,
            "time_us": _times(device, at),
            **columns,
            **parts,
            "phase": _of_events(device, at, device.events.phase, 0),
            "step": _of_events(device, at, device.events.step, -1),
            "reference_size": size,
            "reference_group": group,
        }
    )


def _stacked(device: DeviceTrace, at: Array) -> list[dict[str, Any] | None]:
    """Returns one packed column for each category, or None if it is empty."""
    table = timeline.by_class(device, at, "category", len(schema.CATEGORIES))
    return [pack({"bytes": row})["bytes"] if row.any() else None for row in table]


def _bands(found: bands.Bands, rows: Array) -> dict[str, Any]:
    """Returns one selection of tensors, by their index in ``rows``."""
    return {
        "first": found.first,
        "end": found.end,
        "step": found.step,
        "num_others": found.num_others,
        "tensor": pack({"row": np.searchsorted(rows, found.rows)}),
        "rest": pack({"event": found.at, "bytes": found.rest_bytes}),
    }


def _group(device: DeviceTrace, row: int) -> dict[str, Any]:
    groups = device.groups
    major, minor, stream = int(groups.pool_major[row]), int(groups.pool_minor[row]), int(groups.stream[row])
    pool = "default pool" if (major, minor) == (0, 0) else f"pool {major}.{minor}"
    small = bool(groups.small[row])
    stream_words = "default stream" if stream == 0 else f"stream {stream:#x}"
    return {
        "pool": pool,
        "small": small,
        "stream": stream,
        "label": f"{pool}, {'small' if small else 'large'} blocks, {stream_words}",
    }


def _base(device: DeviceTrace) -> int:
    """Returns the lowest address, which the others are relative to."""
    lowest = [
        int(table[column].min())
        for table, column in ((device.regions, "start"), (device.tensors, "addr"))
        if len(table)
    ]
    return min(lowest, default=0) if device.has_addresses else 0


def _tensors(device: DeviceTrace, rows: Array, base: int, symbols: StackSymbols) -> dict[str, Any]:
    tensors = device.tensors.take(rows)
    return pack(
        {
            "addr": tensors.addr - base if device.has_addresses else None,
            "block": tensors.block_bytes,
            "requested": tensors.requested_bytes,
            "alloc_at": tensors.alloc_at,
            "free_requested_at": tensors.free_requested_at,
            "free_completed_at": tensors.free_completed_at,
            "group": tensors.group,
            "stack": symbols.stack(tensors.stack),
            "free_stack": _known(symbols.stack(tensors.free_stack)),
            "category": tensors.category,
            "lifetime": tensors.lifetime,
            "lifetime_inferred": tensors.lifetime_inferred if tensors.lifetime_inferred.any() else None,
            "name": symbols.name(tensors.name),
            "module": symbols.module(tensors.name, tensors.category),
            "phase_alloc": tensors.phase_alloc,
            "step_alloc": tensors.step_alloc,
        }
    )


def _known(codes: Array) -> Array | None:
    return codes if (codes >= 0).any() else None


def _regions(device: DeviceTrace, at: Array, base: int) -> dict[str, Any]:
    """Returns ranges of reserved memory that exist at one instant at least."""
    regions = device.regions
    after = np.searchsorted(at, regions.opened_at)
    held = (after < len(at)) & (at[np.minimum(after, len(at) - 1)] < regions.closed_at)
    kept = regions.take(np.flatnonzero(held))
    return pack(
        {
            "start": kept.start - base,
            "size": kept.size,
            "opened_at": kept.opened_at,
            "closed_at": kept.closed_at,
            "group": kept.group,
            "expandable": kept.expandable,
            "segment": kept.segment,
        }
    )


def _pins(view: DeviceView, trace: Trace, rows: Array) -> list[int]:
    """Returns which of ``rows`` keep a segment or page from being released at the moment of the report."""
    if not view.device.has_addresses:
        return []
    settings = AllocatorSettings.of(trace)
    here = look(view, settings)
    request = here.request_bytes if here.reference >= 0 else 0
    found = pinned(view, here.topology, settings, here.group, request)
    pins = np.array(sorted(row for pin in found.pins for row in pin.rows) if found else [], np.int64)
    return np.flatnonzero(np.isin(rows, pins)).tolist()


def _flame(stacks: dict[str, Array], symbols: StackSymbols) -> dict[str, Any]:
    """Packs the stacks that are relevant by any measure; the sum of the others has the number -2."""
    kept = np.zeros(len(stacks["stack"]), bool)
    for measure in ("bytes_at", "byte_events", "byte_us", "num_allocs", "total_bytes"):
        kept[np.argsort(-stacks[measure], kind="stable")[:MOST_STACKS]] = True
    rows = {name: values[kept] for name, values in stacks.items()}
    rows["stack"] = symbols.stack(rows["stack"])
    if not kept.all():
        rows = {name: np.append(rows[name], -2 if name == "stack" else stacks[name][~kept].sum()) for name in rows}
    # Products of bytes and time may exceed the exact range of a float, and need not be exact: use kilobytes x time.
    for name in ("byte_events", "byte_us"):
        rows[name] = np.where(rows[name] < 0, -1, np.round(rows[name] / 1024))
    if len(rows["byte_us"]) and rows["byte_us"].min() < 0:
        del rows["byte_us"]
    renamed = {"bytes_at": "bytes_at_peak", "num_at": "num_at_peak", "byte_events": "kib_events", "byte_us": "kib_us"}
    return pack({renamed.get(name, name): values for name, values in rows.items()})
