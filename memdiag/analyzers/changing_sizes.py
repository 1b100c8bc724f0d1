"""Requests whose size changes from step to step, and their cost: cached blocks never fit the next size.

A call site that requests new sizes in step after step leaves free blocks that are slightly too small, or are split and
leave remainders. Its requests then reserve new memory although the cache has enough bytes. A call site that requests
many sizes, but the same ones in every step (a loop over layers), is no problem: its blocks fit again. So only new sizes
after its first step count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import common_callers, label_of
from memdiag.results.finding import Evidence, Finding
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD126": "request sizes change, so cached blocks do not fit"}

MIN_NEW = 3  # steps after the first in which a call site requests a size that it has never requested
NEW_SHARE = 0.25  # of the steps in which it requests anything: sizes that settle are warm-up
MIN_MISSES = 2
FLOOR = 32 * MIB  # reserved from the device for such requests
SHARE = 0.02  # fraction of the reserved peak
WARNING_SHARE = 0.1
MANY_RETRIES = 3
NUM_PLACES = 3

_BACKWARD = schema.PHASES.index("backward")


@dataclass(frozen=True)
class Changing:
    """Requests of call sites whose sizes change.

    Attributes:
        asks: Events of all large requests of these call sites.
        stacks: Stacks of the call sites (-1: backward without one), with ``num_sizes``, ``least`` and ``most``: the
            number and range (bytes) of their sizes.
        at: Events of requests that fitted no cached block although enough bytes were free, with ``opened``, the bytes
            then reserved, and ``free``, the free bytes.
        retried: Per such event, whether the cache was released first, or the request failed.
    """

    asks: Array
    stacks: Array
    num_sizes: Array
    least: Array
    most: Array
    at: Array
    opened: Array
    free: Array
    retried: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD126 of every device; replays answer what padding and expandable segments would save."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        yield from _changing(view, settings)


def find_changing(view: DeviceView) -> Changing | None:
    """Returns requests of call sites whose sizes change from step to step.

    None if there are none, or if steps or call sites are unknown.
    """
    events = view.device.events
    if not view.device.has_addresses or not len(view.trace.stacks) or int(events.step.max(initial=-1)) < MIN_NEW:
        return None
    asks = np.flatnonzero(
        ((events.action == schema.ALLOC) | (events.action == schema.OOM))
        & (events.step >= 0)
        & (events.size > SMALL_LIMIT)
        & ((events.stack >= 0) | (events.phase == _BACKWARD))
    )
    stacks, place = np.unique(events.stack[asks], return_inverse=True)
    place = place.reshape(-1)
    size, step = events.size[asks], events.step[asks].astype(np.int64)
    first_step = np.full(len(stacks), np.iinfo(np.int64).max)
    np.minimum.at(first_step, place, step)
    # for every size of a call site, its first request
    _, first = np.unique(np.stack((place, size)), axis=1, return_index=True)
    new = first[step[first] > first_step[place[first]]]
    num_new = np.bincount(np.unique(np.stack((place[new], step[new])), axis=1)[0], minlength=len(stacks))
    num_later = np.bincount(np.unique(np.stack((place, step)), axis=1)[0], minlength=len(stacks)) - 1
    changes = (num_new >= MIN_NEW) & (num_new >= NEW_SHARE * num_later)
    if not changes.any():
        return None
    at, opened, free, retried = _misses(view, asks[changes[place] & (step > first_step[place])])
    least = np.full(len(stacks), np.iinfo(np.int64).max)
    most = np.zeros(len(stacks), np.int64)
    np.minimum.at(least, place, size)
    np.maximum.at(most, place, size)
    num_sizes = np.bincount(place[first], minlength=len(stacks))
    return Changing(
        asks[changes[place]],
        stacks[changes],
        num_sizes[changes],
        least[changes],
        most[changes],
        at,
        opened,
        free,
        retried,
    )


def _misses(view: DeviceView, asks: Array) -> tuple[Array, Array, Array, Array]:
    """Returns the requests that reserved new memory although enough was free.

    Columns are event, bytes reserved, bytes free, and whether after a retry.
    """
    device, references = view.device, view.device.references
    mine = np.flatnonzero(np.isin(references.at_event, asks))
    at, begin = references.at_event[mine], references.opened_at[mine]
    opens = np.isin(device.events.action, (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP))
    taken = np.concatenate(([0], np.cumsum(np.where(opens, device.events.size, 0))))
    opened = taken[at] - taken[begin]
    held = device.usage.reserved - device.usage.active
    free = np.where(begin > 0, held[np.maximum(begin - 1, 0)], device.start["reserved"] - device.start["active"])
    retried = references.retried[mine] | references.failed[mine]
    missed = ((opened > 0) | references.failed[mine]) & (free >= references.size[mine])
    return at[missed], opened[missed], free[missed], retried[missed]


def _changing(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD126."""
    found, device = find_changing(view), view.device
    peak = max(int(device.usage.reserved.max(initial=0)), device.start["reserved"])
    if found is None or len(found.at) < MIN_MISSES:
        return
    opened, retries = int(found.opened.sum()), int(np.count_nonzero(found.retried))
    if opened < max(FLOOR, SHARE * peak):
        return
    num_steps = len(np.unique(device.events.step[found.at]))
    calls = [line for line in common_callers(view, found.stacks) if not line.endswith(" <module>")]
    place = " → ".join(dict.fromkeys([*calls[:1], *calls[-1:]]))
    title = {"count": len(found.at), "bytes": format_bytes(opened)}
    span = phrase("changing_sizes.span", steps=num_steps, moment=moment_name(device, int(found.at[0])))
    yield Finding(
        "MD126",
        phrase("changing_sizes.title.site", place=place, **title) if place else phrase("changing_sizes.title", **title),
        "warning" if opened >= WARNING_SHARE * peak or retries >= MANY_RETRIES else "info",
        device.device,
        (
            Evidence(phrase("changing_sizes.missed"), len(found.at), "times", span),
            Evidence(phrase("changing_sizes.taken"), opened, "bytes"),
            Evidence(phrase("changing_sizes.free"), int(found.free.max()), "bytes"),
            *([Evidence(phrase("changing_sizes.retried"), retries, "times")] if retries else []),
            Evidence(phrase("changing_sizes.places"), len(found.stacks), "places"),
            *([Evidence(phrase("changing_sizes.calls"), len(calls), "calls", " → ".join(calls))] if calls else []),
            *_places(view, found),
        ),
        settings.offers("expandable-segments", "padded-inputs"),
        weight_bytes=opened // len(found.at),
    )


def _places(view: DeviceView, found: Changing) -> Iterator[Evidence]:
    """Yields the call sites that reserved most, with their number of sizes."""
    number = np.searchsorted(found.stacks, view.device.events.stack[found.at])
    taken = np.bincount(number, weights=found.opened, minlength=len(found.stacks))
    for place in np.lexsort((found.stacks, -taken))[:NUM_PLACES].tolist():
        if taken[place]:
            stack = int(found.stacks[place])
            label = label_of(view, stack) if stack >= 0 else phrase("places.stackless.backward")
            least, most = (format_bytes(int(sizes[place])) for sizes in (found.least, found.most))
            yield Evidence(
                phrase("changing_sizes.sizes", least=least, most=most), int(found.num_sizes[place]), "sizes", label
            )
            times = int((number == place).sum())
            yield Evidence(phrase("changing_sizes.taken.here", count=times), int(taken[place]), "bytes", label)
