"""The verdict in one or two sentences with numbers: what a reader takes away who reads nothing else.

In this order: memory ran out; memory grows without end; how much is reserved, allocated and lost to fragmentation. The second sentence
says what the memory consists of. Both speak of the moment of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memdiag.analyzers.allocator_settings import AllocatorSettings
from memdiag.analyzers.context import Context, DeviceView
from memdiag.analyzers.moments import Look, fragmentation_at, look
from memdiag.analyzers.names import kind_words
from memdiag.analyzers.places import when
from memdiag.analyzers.sites import by_category
from memdiag.findings import Finding
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_history
from memdiag.units import MIB, format_bytes, format_count

LARGE_SHARE, FLOOR = 0.1, 32 * MIB  # of what is reserved: cached memory worth the headline
SHARE = 0.3  # of what is live: worth naming as what it mostly consists of


def headline(trace: Trace, context: Context, findings: Sequence[Finding]) -> str:
    """Returns the verdict on the device that fares worst: one that ran out of memory, else the one that reserves most."""
    views = list(context.views(trace))
    if not views:
        return "This file holds nothing about any device."
    view = max(views, key=lambda v: (_ran_out(v.device), _top(v.device, "reserved"), _top(v.device, "allocated")))
    busy = [v for v in views if _top(v.device, "reserved") > 0 or _top(v.device, "allocated") > 0]
    where = f"Device {view.device.device}: " if len(busy) > 1 else ""
    sentences = [sentence for sentence in _sentences(view, findings) if sentence]
    first = sentences[0] if not where else sentences[0][0].lower() + sentences[0][1:]
    return where + " ".join((first, *sentences[1:]))


def _sentences(view: DeviceView, findings: Sequence[Finding]) -> Iterator[str]:
    device = view.device
    if _top(device, "reserved") <= 0 and _top(device, "allocated") <= 0:
        if _ran_out(device):
            yield _out_of_memory(look(view, AllocatorSettings.of(view.trace)))
        else:
            yield "Nothing was ever held on this device." if device.num_events else "This snapshot holds no memory."
        return
    growing = next((f for f in findings if f.code == "MD301" and f.severity != "info" and f.device == device.device), None)
    if _ran_out(device):
        yield _out_of_memory(look(view, AllocatorSettings.of(view.trace)))
        # What need not be there, where that is why: the largest first.
        cause = next((f for f in findings if f.severity == "critical" and f.code.startswith("MD1") and f.device == device.device), growing)
        yield f"{cause.title}." if cause else ""
    elif growing:
        yield f"{growing.title}: it will run out, however much there is."
    elif not has_history(device):
        known = [f"{format_bytes(device.end[name])} {name}" for name in ("reserved", "allocated") if device.end[name] >= 0]
        yield f"{' and '.join(known)} when the snapshot was taken; how it came to that was not recorded."
    else:
        yield _peak(view)
    yield _consists_of(view)


def _out_of_memory(here: Look) -> str:
    failed = int((here.device.events.action == schema.OOM).sum())
    ran_out = "Ran out of memory" + (f" ({format_count(failed)} times)" if failed > 1 else "")
    if not here.failed:  # the user looks at another moment, or nothing is known of the request
        requests = here.device.events.size[here.device.events.action == schema.OOM]
        return f"{ran_out}: {format_bytes(int(requests.max()))} was asked for."
    usage, asked = here.usage, format_bytes(here.request_bytes)
    free = usage["reserved"] - usage["active"]
    on_device = "" if here.device_free_bytes is None else f" and {format_bytes(here.device_free_bytes)} on the device"
    # What the device has left beyond a whole segment was out of bounds: a limit on this process.
    left = here.device_free_bytes or 0
    if left >= here.segment_bytes and free < here.request_bytes:
        return (
            f"{ran_out} at a limit on this process: {asked} was asked for with {format_bytes(usage['reserved'])} reserved, while "
            f"{format_bytes(left)} was free on the device."
        )
    if here.usable_bytes < here.request_bytes:
        return (
            f"{ran_out}: {asked} was asked for with {format_bytes(usage['allocated'])} allocated; only {format_bytes(free)} was free in "
            f"this process{on_device}. Memory itself was short, not its arrangement."
        )
    if not here.device.has_addresses:
        return f"{ran_out}: {asked} was asked for, {format_bytes(free)} was free in this process{on_device}."
    if here.fit.fits:
        return f"{ran_out}: {asked} was asked for although a free piece of {format_bytes(here.fit.largest_free_bytes)} was there."
    pieces = f"in pieces of at most {format_bytes(here.fit.largest_free_bytes)}"
    if here.is_full:
        return (
            f"{ran_out}: {asked} was asked for with {format_bytes(usage['allocated'])} allocated; nearly all of the memory is in use: "
            f"{format_bytes(free)} was free in this process{on_device}, {pieces}."
        )
    elsewhere = free - here.fit.free_bytes
    if elsewhere > here.fit.free_bytes:
        pieces += f", or of another pool or stream ({format_bytes(elsewhere)})"
    on_device = on_device if free < here.request_bytes else ""
    return f"{ran_out}: {asked} was asked for, {format_bytes(free)} was free in this process{on_device} but {pieces}."


def _peak(view: DeviceView) -> str:
    """Returns what is reserved and allocated at the moment of the report, and what of the free rest is lost or cached."""
    usage = view.device.usage_at(view.at)
    reserved, allocated = usage["reserved"], usage["allocated"]
    then = "Peak" if view.kind == "peak" else f"{when(view).capitalize()},"
    if reserved < 0:
        return f"{then} {format_bytes(allocated)} allocated; what was reserved for it is not in the file."
    if allocated < 0:
        return f"{then} {format_bytes(reserved)} reserved; what was allocated of it is not in the file."
    before = " before the recording began, and never more since" if view.at < 0 and view.kind == "peak" else ""
    numbers = f"{then} {format_bytes(reserved)} reserved, {format_bytes(allocated)} allocated{before}"
    split = fragmentation_at(view.device, view.at, view.trace.layout.large_segment)
    if split.lost_bytes is None or not reserved:
        return f"{numbers}."
    share = split.lost_bytes / reserved
    lost = f"{format_bytes(split.lost_bytes)} ({share:.{0 if share >= LARGE_SHARE else 1}%}) lost to fragmentation"
    cache = split.cache_bytes or 0
    cached = f", {format_bytes(cache)} cached for reuse" if cache >= max(LARGE_SHARE * reserved, FLOOR) else ""
    return f"{numbers}: {lost if split.lost_bytes else 'nothing lost to fragmentation'}{cached}."


def _consists_of(view: DeviceView) -> str:
    """Returns what the memory held at the moment looked at mostly consists of; "" where nothing stands out, or nothing is known."""
    tensors, rows = view.device.tensors, view.live
    total = int(tensors.block_bytes[rows].sum())
    if not total:
        return ""
    name, size = next(((n, b) for n, b in by_category(view, rows).items() if n != "unknown"), ("", 0))
    there = (tensors.alloc_at[rows] < 0) & has_history(view.device)
    before = int(tensors.block_bytes[rows][there].sum())
    of_unknown_kind = int(tensors.block_bytes[rows][there & (tensors.category[rows] == 0)].sum())
    moment = "the peak" if view.kind == "peak" else f"what is live {when(view)}"
    if size >= max(SHARE * total, of_unknown_kind):
        if size < total / 2:
            return f"The largest part of {moment} is {kind_words(name)} ({size / total:.0%})."
        return f"{size / total:.0%} of {moment} is {kind_words(name)}."
    if of_unknown_kind >= SHARE * total:
        return f"{before / total:.0%} of {moment} was there before the recording began."
    return ""


def _ran_out(device: DeviceTrace) -> bool:
    return bool((device.events.action == schema.OOM).any())


def _top(device: DeviceTrace, curve: str) -> int:
    """Returns the highest value of a curve; of a file without a trace, the value at the end; -1: unknown."""
    highest = int(np.max(device.usage[curve], initial=-1))
    return max(highest, device.start[curve], device.end[curve] if not has_history(device) else -1)
