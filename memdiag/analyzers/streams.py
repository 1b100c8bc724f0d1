"""Memory that the program has freed and nobody can use yet, because another stream may still work on it.

A tensor on which record_stream was called, or that a collective took, stays in its block after it is freed until an event on the
other stream completes. The host runs ahead of the device, so that can be long: active is then well above allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.allocator_settings import AllocatorSettings
from memdiag.analyzers.context import Context, DeviceView
from memdiag.analyzers.moments import look
from memdiag.analyzers.names import has_names, place_of
from memdiag.analyzers.places import moment_name, when
from memdiag.findings import Evidence, Finding, Fix
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, MIB, format_bytes, plural

CODES: dict[str, str] = {
    "MD501": "freed blocks wait for another stream",
    "MD502": "out of memory although a free range was large enough",
}

SHARE = 0.05  # of reserved memory, at the moment looked at: a warning
ANYTIME_SHARE = 0.1  # of the reserved peak, at any other moment: worth knowing
FLOOR = 32 * MIB
NUM_PLACES = 3
_COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "unshard", "allgather", "allreduce")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD501 and MD502 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        yield from _pending(view, trace.backend)
        yield from _too_late(view, settings)


def _pending(view: DeviceView, backend: str | None) -> Iterator[Finding]:
    """MD501."""
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
        f"Up to {format_bytes(most)} of freed memory waits for another stream{f', {format_bytes(here)} {when(view)}' if at_peak else ''}",
        "warning" if at_peak else "info",
        device.device,
        (
            Evidence("freed but waiting (active - allocated)", here, "bytes", moment_name(device, view.at)),
            Evidence("most that ever waited", most, "bytes", moment_name(device, worst)),
            Evidence("tensors whose free had to wait", len(rows), "tensors"),
            *_by_place(view, rows),
        ),
        tuple(_remedies(view, rows, backend)),
        weight_bytes=max(here, 0) or most,
    )


def _waiting(view: DeviceView) -> Array:
    """Returns, per event, the bytes that wait; a free that completes with the next entry does not count as waiting in between."""
    events, usage, tensors = view.device.events, view.device.usage, view.device.tensors
    waiting = usage.active - usage.allocated
    asked = np.flatnonzero((events.action == schema.FREE_REQUESTED) & (events.tensor >= 0))
    rows = events.tensor[asked]
    at_once = tensors.free_completed_at[rows] == asked + 1
    waiting[asked[at_once]] -= tensors.block_bytes[rows[at_once]]
    return waiting


def _waited(view: DeviceView) -> Array:
    """Returns the rows of tensors whose free was asked for in the trace and completed later than with the next entry."""
    tensors, num_events = view.device.tensors, view.device.num_events
    asked = (tensors.free_requested_at >= 0) & (tensors.free_requested_at < num_events)
    return np.flatnonzero(asked & (tensors.free_completed_at > tensors.free_requested_at + 1))


def _by_place(view: DeviceView, rows: Array) -> Iterator[Evidence]:
    """The places with most bytes x time; time in seconds where the trace has a clock, else in events."""
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
        place = (place_of(view, own[number], label) if has_names(view) else label) or "unknown place"
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
        yield Evidence(f"bytes x time waited by {plural(count, 'tensor')}", round(value, 3), unit, place)


def _remedies(view: DeviceView, rows: Array, backend: str | None) -> Iterator[Fix]:
    if backend == "npu":
        yield Fix(
            "Let torch_npu hand back what a finished collective used: the default, 1, or 3, which includes tensors already freed",
            "env",
            "export MULTI_STREAM_MEMORY_REUSE=3",
            "torch_npu",
            "2 keeps tensors longer instead; the snapshot does not say which value was set",
        )
    elif backend == "cuda" and _is_collective(view, rows):
        yield Fix(
            "Let collectives keep their tensors instead of recording streams on them",
            "env",
            "export TORCH_NCCL_AVOID_RECORD_STREAMS=1",
            "torch 2.1 to 2.7; from 2.8 on it is what happens anyway",
            "an asynchronous collective whose handle is never waited for then keeps its tensors",
        )
        yield Fix("With FSDP1, keep limit_all_gathers=True (the default); FSDP2 records no streams", "code", "", "FSDP")
    yield Fix(
        "Instead of record_stream: make the first stream wait for the other (wait_stream or an event) before the tensor is freed",
        "code",
        "",
        "every backend",
        "waiting too early loses the overlap of copies and compute",
    )


def _is_collective(view: DeviceView, rows: Array) -> bool:
    """Whether some tensor that waited was allocated or freed under a function named like a collective."""
    stacks = view.trace.stacks
    if not len(stacks) or not len(rows):
        return False
    named = stacks.with_frame(np.array([any(word in frame.name for word in _COLLECTIVES) for frame in stacks.frames], bool))
    tensors = view.device.tensors
    both = np.concatenate((tensors.stack[rows], tensors.free_stack[rows]))
    return bool(named[both[both >= 0]].any())


def _too_late(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """MD502: the allocator does not search again after the wait in which pending frees complete."""
    here = look(view, settings)
    if not here.failed or not view.device.has_addresses or not here.fit.fits:
        return
    yield Finding(
        "MD502",
        f"Out of memory although {format_bytes(here.fit.largest_free_bytes)} lay free in one piece for {format_bytes(here.request_bytes)}",
        "critical",
        view.device.device,
        (
            Evidence("asked for (rounded)", here.request_bytes, "bytes", here.name + (f", {here.site}" if here.site else "")),
            Evidence("largest free range of its pool and stream afterwards", here.fit.largest_free_bytes, "bytes"),
        ),
        (
            Fix(
                "Free the tensors that wait for other streams earlier (MD501), so that their blocks are back before memory is full",
                "code",
                "",
                "every backend",
                "as a stopgap, catch the error and try once more: by then the range is found",
            ),
        ),
        weight_bytes=here.request_bytes,
    )
