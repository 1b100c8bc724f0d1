"""The verdict in one or two sentences with numbers, for readers who read nothing else.

The first applicable case is used: memory ran out; memory keeps growing; reserved, allocated and fragmented bytes. The
second sentence gives the composition of the memory. Both are about the moment of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.failure_cause import classified
from memdiag.analyzers.support.moments import DeviceMoment, fragmentation_at, look
from memdiag.analyzers.support.names import kind_words
from memdiag.analyzers.support.places import when
from memdiag.analyzers.support.sites import by_category
from memdiag.results.finding import Finding
from memdiag.text import Phrase, joined, phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_history
from memdiag.units import MIB, format_bytes

LARGE_SHARE, FLOOR = 0.1, 32 * MIB  # fraction of reserved memory: cached memory worth the headline
SHARE = 0.3  # fraction of live memory: worth naming as the main part
NEAR = 0.9  # of the allocated peak: with fewer allocated bytes, the moment is the peak of reserved bytes only


def headline(trace: Trace, context: Context, findings: Sequence[Finding]) -> Phrase:
    """Returns the verdict on the worst device: one that ran out of memory, else the one that reserves most."""
    views = list(context.views(trace))
    if not views:
        return phrase("headline.nothing")
    view = max(views, key=lambda v: (_ran_out(v.device), _top(v.device, "reserved"), _top(v.device, "allocated")))
    busy = [v for v in views if _top(v.device, "reserved") > 0 or _top(v.device, "allocated") > 0]
    where = phrase("headline.device", device=view.device.device) if len(busy) > 1 else ""
    return joined((where, *_sentences(view, findings)))


def _sentences(view: DeviceView, findings: Sequence[Finding]) -> Iterator[str]:
    device = view.device
    if _top(device, "reserved") <= 0 and _top(device, "allocated") <= 0:
        if _ran_out(device):
            yield _out_of_memory(look(view, AllocatorSettings.of(view.trace)))
        else:
            yield phrase("headline.idle") if device.num_events else phrase("headline.no-memory")
        return
    growing = next(
        (f for f in findings if f.code == "MD301" and f.severity != "info" and f.device == device.device), None
    )
    cause = growing
    if _ran_out(device):
        yield _out_of_memory(look(view, AllocatorSettings.of(view.trace)))
        yield _continued(view)
        # Avoidable memory, if that is the cause: the largest first.
        cause = next(
            (
                f
                for f in findings
                if f.severity == "critical" and f.code.startswith("MD1") and f.device == device.device
            ),
            growing,
        )
        yield phrase("headline.cause", title=cause.title) if cause else ""
    elif growing:
        yield phrase("headline.grows", title=growing.title)
    elif not has_history(device):
        known = [(name, device.end[name]) for name in ("reserved", "allocated") if device.end[name] >= 0]
        amounts = joined(
            (phrase(f"headline.amount.{name}", bytes=format_bytes(size)) for name, size in known),
            phrase("headline.and"),
        )
        yield phrase("headline.snapshot", amounts=amounts)
    else:
        yield _peak(view)
        if _is_reserved_peak_only(view):
            yield phrase("headline.elsewhere", most=format_bytes(_top(device, "allocated")))
    if cause is growing:  # another cause names the main part of the memory itself
        yield _consists_of(view, has_cause=growing is not None)


def _out_of_memory(here: DeviceMoment) -> Phrase:
    failed = int((here.device.events.action == schema.OOM).sum())
    times = phrase("headline.times", count=failed) if failed > 1 else ""
    if not here.failed:  # the user chose another moment, or the request is unknown
        requests = here.device.events.size[here.device.events.action == schema.OOM]
        return phrase("headline.oom.unknown", times=times, asked=format_bytes(int(requests.max())))
    usage, free = here.usage, here.usage["reserved"] - here.usage["active"]
    left = here.device_free_bytes
    device = "" if left is None else phrase("headline.on-device", left=format_bytes(left))
    words: dict[str, str] = {
        "times": times,
        "asked": format_bytes(here.request_bytes),
        "allocated": format_bytes(usage["allocated"]),
        "free": format_bytes(free),
        "device": device,
    }
    facts, judgement = classified(here)
    if facts.missing > facts.pool:
        if left is not None and judgement.rule in {"limit", "refused"}:
            return phrase(
                "headline.oom.limit", reserved=format_bytes(usage["reserved"]), left=format_bytes(left), **words
            )
        return phrase("headline.oom.capacity", **words)
    if not here.device.has_addresses:
        return phrase("headline.oom.no-addresses", **words)
    largest = format_bytes(here.fit.largest_free_bytes)
    if here.fit.fits:
        return phrase("headline.oom.fits", largest=largest, **words)
    if judgement.verdict == "capacity":
        return phrase("headline.oom.full", blocks=phrase("headline.blocks", largest=largest), **words)
    elsewhere = free - here.fit.free_bytes
    blocks = phrase("headline.blocks", largest=largest)
    if elsewhere > here.fit.free_bytes:
        blocks = phrase("headline.blocks.elsewhere", largest=largest, elsewhere=format_bytes(elsewhere))
    if free >= here.request_bytes:
        words["device"] = ""
    return phrase("headline.oom.fragmented", blocks=blocks, **words)


def _continued(view: DeviceView) -> Phrase | str:
    """Returns that the program caught its out-of-memory errors, allocated more memory and ended without an error."""
    events, ended = view.device.events, view.trace.recorded.ended if view.trace.recorded else None
    failed = np.flatnonzero(events.action == schema.OOM)
    if ended is None or ended.reason != "exit" or ended.error:
        return ""
    if not (events.action[failed[-1] :] == schema.ALLOC).any():
        return ""
    return phrase("headline.continued", count=len(failed))


def _is_reserved_peak_only(view: DeviceView) -> bool:
    """Returns whether much more memory was allocated at another moment, when less was reserved.

    An evaluation, for example, reserves a little more than the training before it, and then allocates much less.
    """
    allocated = view.device.usage_at(view.at)["allocated"]
    return view.kind == "peak" and 0 <= allocated < NEAR * _top(view.device, "allocated")


def _peak(view: DeviceView) -> Phrase:
    """Returns reserved and allocated bytes at the moment of the report, and the lost or cached part of the rest."""
    usage = view.device.usage_at(view.at)
    reserved, allocated = usage["reserved"], usage["allocated"]
    peak = phrase("headline.reserved-peak" if _is_reserved_peak_only(view) else "headline.peak")
    then = peak if view.kind == "peak" else phrase("headline.then", moment=when(view).capitalize())
    if reserved < 0:
        return phrase("headline.no-reserved", then=then, allocated=format_bytes(allocated))
    if allocated < 0:
        return phrase("headline.no-allocated", then=then, reserved=format_bytes(reserved))
    before = phrase("headline.before") if view.at < 0 and view.kind == "peak" else ""
    words: dict[str, str] = {
        "then": then,
        "reserved": format_bytes(reserved),
        "allocated": format_bytes(allocated),
        "before": before,
    }
    split = fragmentation_at(view.device, view.at, view.trace.layout.large_segment)
    if split.lost_bytes is None or not reserved:
        return phrase("headline.numbers", **words)
    cache = split.cache_bytes or 0
    words["cached"] = (
        phrase("headline.cached", bytes=format_bytes(cache)) if cache >= max(LARGE_SHARE * reserved, FLOOR) else ""
    )
    if not split.lost_bytes:
        return phrase("headline.lost.none", **words)
    share = split.lost_bytes / reserved
    shown = f"{share:.{0 if share >= LARGE_SHARE else 1}%}"
    return phrase("headline.lost", lost=format_bytes(split.lost_bytes), share=shown, **words)


def _consists_of(view: DeviceView, *, has_cause: bool) -> str:
    """Returns the main part of the memory at the moment of the report, or "" if there is none or it is unknown.

    ``has_cause``: whether the headline already names memory that grows, often of an unknown category.
    """
    tensors, rows = view.device.tensors, view.live
    total = int(tensors.block_bytes[rows].sum())
    if not total:
        return ""
    name, size = next(((n, b) for n, b in by_category(view, rows).items() if n != "unknown"), ("", 0))
    there = (tensors.alloc_at[rows] < 0) & has_history(view.device)
    before = int(tensors.block_bytes[rows][there].sum())
    unknown = tensors.category[rows] == 0
    of_unknown_kind = int(tensors.block_bytes[rows][there & unknown].sum())
    all_unknown = int(tensors.block_bytes[rows][unknown].sum())
    peak = phrase("headline.moment.reserved-peak" if _is_reserved_peak_only(view) else "headline.moment.peak")
    moment = peak if view.kind == "peak" else phrase("headline.moment", moment=when(view))
    if size >= max(SHARE * total, all_unknown):
        largest = {"moment": moment, "kind": kind_words(name), "share": f"{size / total:.0%}"}
        if size >= total / 2:
            return phrase("headline.most", **largest)
        is_peak = view.kind == "peak" and not _is_reserved_peak_only(view)
        return phrase("headline.largest" if is_peak else "headline.largest.live", **largest)
    if of_unknown_kind >= SHARE * total:
        return phrase("headline.earlier", moment=moment, share=f"{before / total:.0%}")
    if size and all_unknown >= SHARE * total and has_history(view.device) and not has_cause:
        return phrase("headline.unknown", moment=moment, share=f"{all_unknown / total:.0%}")
    return ""


def _ran_out(device: DeviceTrace) -> bool:
    return bool((device.events.action == schema.OOM).any())


def _top(device: DeviceTrace, curve: str) -> int:
    """Returns the highest value of a curve, the value at the end in a file without a trace, or -1 if unknown."""
    highest = int(np.max(device.usage[curve], initial=-1))
    return max(highest, device.start[curve], device.end[curve] if not has_history(device) else -1)
