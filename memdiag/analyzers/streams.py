"""Freed memory that the allocator cannot reuse yet, because another stream may still use it.

A tensor on which record_stream was called, or that a collective used, stays in its block after it is freed until an
event on the other stream completes. The host runs ahead of the device, so that can take long: active is then well above
allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.failure_cause import classified
from memdiag.analyzers.support.moments import look
from memdiag.analyzers.support.names import has_names, place_of
from memdiag.analyzers.support.places import moment_name, when
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import joined, phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {
    "MD501": "freed memory waits for another stream",
    "MD502": "out of memory although a free range was large enough",
}

SHARE = 0.05  # fraction of reserved memory at the moment of the report: a warning
ANYTIME_SHARE = 0.1  # fraction of the reserved peak at any other moment: worth knowing
FLOOR = 32 * MIB
NUM_PLACES = 3
_COLLECTIVES = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "all_to_all",
    "unshard",
    "allgather",
    "allreduce",
)


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD501 and MD502 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        yield from _pending(view, settings)
        yield from _too_late(view, settings)


def _pending(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD501."""
    device, usage = view.device, view.device.usage
    if not device.num_events or usage.active.min() < 0 or usage.allocated.min() < 0:
        return
    waiting = _waiting(view)
    worst = int(np.argmax(waiting))
    most, peak = int(waiting[worst]), max(int(usage.reserved.max()), int(usage.active.max()))
    here = int(waiting[view.at]) if view.at >= 0 else device.start["active"] - device.start["allocated"]
    at_peak = here >= max(SHARE * peak, FLOOR)
    if not at_peak and most < max(ANYTIME_SHARE * peak, FLOOR):
        return
    rows = _waited(view)
    yield Finding(
        "MD501",
        phrase("streams.title.now", bytes=format_bytes(most), now=format_bytes(here), when=when(view))
        if at_peak
        else phrase("streams.title", bytes=format_bytes(most)),
        "warning" if at_peak else "info",
        device.device,
        (
            Evidence(phrase("streams.waiting"), here, "bytes", moment_name(device, view.at)),
            Evidence(phrase("streams.highest"), most, "bytes", moment_name(device, worst)),
            Evidence(phrase("streams.delayed"), len(rows), "tensors"),
            *_by_place(view, rows),
        ),
        _remedies(view, rows, settings),
        weight_bytes=max(here, 0) or most,
    )


def _waiting(view: DeviceView) -> Array:
    """Returns, per event, the pending bytes; a free that completes with the next entry does not count as pending."""
    events, usage, tensors = view.device.events, view.device.usage, view.device.tensors
    waiting = usage.active - usage.allocated
    asked = np.flatnonzero((events.action == schema.FREE_REQUESTED) & (events.tensor >= 0))
    rows = events.tensor[asked]
    at_once = tensors.free_completed_at[rows] == asked + 1
    waiting[asked[at_once]] -= tensors.block_bytes[rows[at_once]]
    return waiting


def _waited(view: DeviceView) -> Array:
    """Returns the rows of tensors whose free was requested in the trace and completed later than the next entry."""
    tensors, num_events = view.device.tensors, view.device.num_events
    asked = (tensors.free_requested_at >= 0) & (tensors.free_requested_at < num_events)
    return np.flatnonzero(asked & (tensors.free_completed_at > tensors.free_requested_at + 1))


def _by_place(view: DeviceView, rows: Array) -> Iterator[Evidence]:
    """Yields the call sites with most bytes x time; time in seconds if the trace has times, else in events."""
    tensors, events, num_events = view.device.tensors, view.device.events, view.device.num_events
    begin, end = tensors.free_requested_at[rows], np.minimum(tensors.free_completed_at[rows], num_events - 1)
    has_clock = bool(len(events.time_us)) and int(events.time_us.min()) >= 0
    length = (events.time_us[end] - events.time_us[begin]) / 1e6 if has_clock else (end - begin).astype(float)
    cost = np.maximum(length, 0) * tensors.block_bytes[rows]
    totals: dict[str, tuple[float, int]] = {}
    stacks, inverse = np.unique(tensors.stack[rows], return_inverse=True)
    sums, counts = np.bincount(inverse, cost, len(stacks)), np.bincount(inverse, minlength=len(stacks))
    own = np.split(rows[np.argsort(inverse, kind="stable")], np.cumsum(counts)[:-1])
    for number, (stack, total, count) in enumerate(zip(stacks.tolist(), sums.tolist(), counts.tolist(), strict=True)):
        label = view.label(stack)
        place = (place_of(view, own[number], label) if has_names(view) else label) or phrase("streams.nowhere")
        before = totals.get(place, (0.0, 0))
        totals[place] = (before[0] + total, before[1] + count)
    for place in sorted(totals, key=lambda name: (-totals[name][0], name))[:NUM_PLACES]:
        total, count = totals[place]
        if not has_clock:
            value, unit = total / GIB, "GiB x events"
        elif total >= GIB / 100:
            value, unit = total / GIB, "GiB x s"
        else:
            value, unit = total / MIB * 1000, "MiB x ms"
        yield Evidence(phrase("streams.cost", count=count), round(value, 3), unit, place)


def _remedies(view: DeviceView, rows: Array, settings: AllocatorSettings) -> tuple[Fix, ...]:
    of_collectives = ("stream-references", "limited-gathers") if _is_collective(view, rows) else ()
    return settings.offers("stream-reuse", *of_collectives, "stream-wait")


def _is_collective(view: DeviceView, rows: Array) -> bool:
    """Returns whether a waiting tensor was allocated or freed in a function named like a collective."""
    stacks = view.trace.stacks
    if not len(stacks) or not len(rows):
        return False
    named = stacks.with_frame(
        np.array([any(word in frame.name for word in _COLLECTIVES) for frame in stacks.frames], bool)
    )
    tensors = view.device.tensors
    both = np.concatenate((tensors.stack[rows], tensors.free_stack[rows]))
    return bool(named[both[both >= 0]].any())


def _too_late(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD502: the allocator does not search again after the wait in which pending frees complete."""
    here = look(view, settings)
    if not here.failed or not classified(here)[0].fits:
        return
    yield Finding(
        "MD502",
        phrase(
            "streams.late.title",
            asked=format_bytes(here.request_bytes),
            bytes=format_bytes(here.fit.largest_free_bytes),
        ),
        "critical",
        view.device.device,
        (
            Evidence(phrase("fragmentation.asked"), here.request_bytes, "bytes", joined([here.name, here.site], ", ")),
            Evidence(phrase("streams.late.range"), here.fit.largest_free_bytes, "bytes"),
        ),
        settings.offers("less-waiting"),
        weight_bytes=here.request_bytes,
    )
