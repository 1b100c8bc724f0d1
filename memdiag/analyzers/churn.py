"""How often memory is reserved from the device and released, and whether pressure or the program is the cause.

The allocator releases cached memory in two cases: a request failed, so it releases all free segments and tries again (a
retry), or the program called empty_cache(). Both synchronise the device. In the log, both are runs of segment_free or
segment_unmap entries. A retry is followed by the request's own segment_alloc, segment_map or oom, and its entries have
the stack of that request. A call is recognised by one of three signs: another event follows, its entries have a stack
with empty_cache, or the next request would have fitted without the release because more memory was reserved at another
time, or because the device had room. PyTorch itself empties the cache after it has tried the algorithms of a
convolution (torch.backends.cudnn.benchmark); these calls have no frame with empty_cache. With
garbage_collection_threshold, a release before a new segment that leaves cached memory comes from garbage collection,
since a retry leaves none. A release that leaves none may be either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.diagnosis.remedies import present
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {
    "MD401": "the allocator released its cache to serve a request (retry)",
    "MD402": "empty_cache() in training makes the allocator reserve memory again",
    "MD403": "reserved memory grows although live memory does not",
}

MANY_RETRIES = 3  # a warning from here on: one or two can be the first step
MIN_CALLS = 3
_CAPTURE = ("torch/cuda/graphs.py", "torch_npu/npu/graphs.py")
# Fraction of the bytes released by empty_cache() that is reserved again: below it, the call does no harm.
REBUILT = 0.25
GROWTH = 0.05  # fraction of the reserved peak, in the second half of the trace
FLOOR = 32 * MIB
MIN_OPENED = (
    # Number of times new memory was reserved in it, with another rise in its later half: otherwise it was one large
    # tensor.
    3
)
SPARE = 0.95  # a retry is possible only near the highest reserved bytes so far, and near the room on the device
NUM_PLACES = 3

_QUIET = (schema.FREE_COMPLETED, schema.SNAPSHOT, schema.WORKSPACE_SNAPSHOT, schema.UNKNOWN)
_RELEASE = (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)
_OPEN = (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)


@dataclass(frozen=True)
class Bursts:
    """Runs of releases, one entry each.

    Attributes:
        first, last: Events of the run's first and last release.
        bytes: Bytes released.
        then: First event after the run that is not a completion, or num_events.
        is_call: Whether the run looks like a call of empty_cache(), otherwise like a retry.
    """

    first: Array
    last: Array
    bytes: Array
    then: Array
    is_call: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD401 to MD403 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        if view.device.num_events:
            bursts = find_bursts(view)
            yield from _retries(view, bursts, settings)
            yield from _calls(view, bursts, settings)
            yield from _growth(view, settings)


def find_bursts(view: DeviceView) -> Bursts:
    """Returns every run of releases of one device with its classification."""
    events, num_events = view.device.events, view.device.num_events
    loud = np.flatnonzero(~np.isin(events.action, _QUIET))
    released = np.isin(events.action[loud], _RELEASE)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], released.astype(np.int8), [0]))))
    begin, end = edges[::2], edges[1::2]
    first, last = loud[begin], loud[end - 1]
    then = np.append(loud, num_events)[end]
    releases = loud[released]
    total = np.concatenate(([0], np.cumsum(events.size[releases])))
    size = total[np.searchsorted(releases, last, side="right")] - total[np.searchsorted(releases, first)]
    return Bursts(first, last, size, then, _is_call(view, first, last, then))


def _is_call(view: DeviceView, first: Array, last: Array, then: Array) -> Array:
    events, usage = view.device.events, view.device.usage
    action = _values_at(events.action, then, schema.UNKNOWN)
    in_malloc = np.isin(action, (*_OPEN, schema.OOM))
    # Test whether the next request would have fitted without the release. It would if more than the sum was reserved at
    # another time.
    before = np.where(first > 0, usage.reserved[np.maximum(first - 1, 0)], view.device.start["reserved"])
    wanted = _values_at(events.size, then, 0)
    roomy = (before + wanted <= SPARE * max(int(usage.reserved.max()), 1)) & (action != schema.OOM)
    room = view.device.room_bytes
    has_room = (before + wanted <= SPARE * (room or 0)) & (action != schema.OOM)
    stack = events.stack[last]
    says_so = (stack >= 0) & _has_name(view, "empty_cache")[np.maximum(stack, 0)]
    same_request = (stack >= 0) & (stack == _values_at(events.stack, then, -1))
    asked_for = (first > 0) & (events.action[np.maximum(first - 1, 0)] == schema.EMPTY_CACHE)
    looks_like_call: Array = says_so | asked_for | ~in_malloc | has_room | (roomy & ~same_request)
    return looks_like_call


def _values_at(column: Array, rows: Array, missing: int) -> Array:
    """Returns values of a column that is not empty; ``missing`` for the row after the last one."""
    values: Array = np.where(rows < len(column), column[np.minimum(rows, len(column) - 1)], missing)
    return values


def _has_name(view: DeviceView, name: str) -> Array:
    """Returns, per stack, whether a frame has this function name (one False without stacks)."""
    stacks = view.trace.stacks
    if not len(stacks):
        return np.zeros(1, bool)
    return stacks.with_frame(np.array([frame.name == name for frame in stacks.frames], bool))


def _of_capture(view: DeviceView) -> Array:
    """Returns, per stack and for none (-1), whether a graph is captured.

    ``torch.cuda.graph`` empties the cache itself.
    """
    frames = view.trace.stacks.frames
    capture = np.array([frame.filename.replace("\\", "/").endswith(_CAPTURE) for frame in frames], bool)
    return np.append(view.trace.stacks.with_frame(capture), False)


def count_retries(view: DeviceView, settings: AllocatorSettings) -> int:
    """Returns how often the allocator released its cache and asked the driver again (its counter num_alloc_retries).

    Every out-of-memory error follows such a retry, even one that found nothing to release and so left no entry.
    """
    device, bursts = view.device, find_bursts(view)
    requests = np.flatnonzero(np.isin(device.events.action, (schema.ALLOC, schema.OOM)))
    served = np.searchsorted(requests, bursts.then[_is_retry(view, bursts, settings)])
    return len(np.union1d(requests[served[served < len(requests)]], np.flatnonzero(device.events.action == schema.OOM)))


def _is_retry(view: DeviceView, bursts: Bursts, settings: AllocatorSettings) -> Array:
    # A retry releases all free memory. With these settings, some releases stop earlier.
    partial = "garbage_collection_threshold" in settings.keys or settings.layout.max_split is not None
    return np.asarray(~bursts.is_call & ~(partial & (view.device.usage.cache[bursts.last] > 0)))


def _retries(view: DeviceView, bursts: Bursts, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD401. A release followed by an error belongs to that error (MD201, MD206)."""
    device = view.device
    action = np.append(device.events.action, schema.UNKNOWN)[bursts.then]
    collects = "garbage_collection_threshold" in settings.keys
    mine = np.flatnonzero(_is_retry(view, bursts, settings) & (action != schema.OOM))
    if not len(mine):
        return
    released = int(bursts.bytes[mine].sum())
    peak = int(device.usage.reserved.max())
    failed = int((device.events.action == schema.OOM).sum())
    yield Finding(
        "MD401",
        phrase("churn.retries.title.collects" if collects else "churn.retries.title", count=len(mine)),
        "warning" if len(mine) >= MANY_RETRIES and not collects else "info",
        device.device,
        (
            Evidence(phrase("churn.retries"), len(mine), "times", _span(view, bursts.first[mine])),
            *([Evidence(phrase("churn.retries.failed"), failed, "times")] if failed else ()),
            *_per_step(view, bursts.first[mine]),
            Evidence(phrase("churn.released"), released, "bytes"),
            Evidence(phrase("churn.peak"), peak, "bytes"),
            *_time(view, bursts, mine),
            *_places(view, device.events.stack[bursts.then[mine]], phrase("churn.requests")),
        ),
        present(
            Fix(phrase("churn.fix.lower"), "code"),
            settings.offer("expandable-segments"),
        ),
        weight_bytes=released // len(mine),
    )


def _calls(view: DeviceView, bursts: Bursts, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD402.

    A good part of the released bytes must be reserved again, since a call between phases is no problem.
    """
    device = view.device
    training = (
        device.events.step[bursts.first] >= 0 if (device.events.step >= 0).any() else np.ones(len(bursts.first), bool)
    )
    mine = np.flatnonzero(bursts.is_call & training & ~_of_capture(view)[device.events.stack[bursts.last]])
    if len(mine) < MIN_CALLS:
        return
    opened = np.concatenate(([0], np.cumsum(np.where(np.isin(device.events.action, _OPEN), device.events.size, 0))))
    until = np.append(bursts.first[mine][1:], device.num_events)
    again = np.minimum(opened[until] - opened[bursts.last[mine]], bursts.bytes[mine])
    released, rebuilt = int(bursts.bytes[mine].sum()), int(again.sum())
    if rebuilt < REBUILT * released:
        return
    called = np.flatnonzero(
        (device.events.stack >= 0) & _has_name(view, "empty_cache")[np.maximum(device.events.stack, 0)]
    )
    if _is_benchmark(view, bursts, mine, called):
        yield _benchmark(view, bursts, mine, rebuilt)
        return
    stacks = device.events.stack[np.intersect1d(called, bursts.last[mine])]
    yield Finding(
        "MD402",
        phrase("churn.calls.title", count=len(mine), bytes=format_bytes(rebuilt)),
        "warning",
        device.device,
        (
            Evidence(phrase("churn.calls"), len(mine), "times", _span(view, bursts.first[mine])),
            *_per_step(view, bursts.first[mine]),
            Evidence(phrase("churn.given"), released, "bytes"),
            Evidence(phrase("churn.again"), rebuilt, "bytes"),
            *_time(view, bursts, mine),
            *_places(view, stacks, phrase("churn.from")),
        ),
        tuple(
            replace(fix, change=phrase("churn.fix.once.change", call=fix.change) if fix.change else "")
            for fix in present(settings.offer("empty-cache", caveat=phrase("churn.fix.once.caveat")))
        ),
        weight_bytes=released // len(mine),
    )


def _is_benchmark(view: DeviceView, bursts: Bursts, mine: Array, called: Array) -> bool:
    """Returns whether PyTorch emptied the cache itself: no call has a frame of Python, but most follow a workspace."""
    device = view.device
    if not len(view.trace.stacks) or np.isin(bursts.last[mine], called).any():
        return False
    marks = device.events.action[np.maximum(bursts.first[mine] - 1, 0)] == schema.EMPTY_CACHE
    workspace = device.tensors.category == schema.CATEGORIES.index("workspace")
    tried = np.sort(device.tensors.free_completed_at[workspace])
    since = (
        tried[np.maximum(np.searchsorted(tried, bursts.first[mine]) - 1, 0)] if len(tried) else np.full(len(mine), -1)
    )
    follows = (since >= 0) & (since < bursts.first[mine]) & (bursts.first[mine] - since <= 2)
    return bool(not marks.any() and 2 * follows.sum() > len(mine))


def _benchmark(view: DeviceView, bursts: Bursts, mine: Array, rebuilt: int) -> Finding:
    """Returns MD402 for the trials of convolutions, which is a warning if many steps need some."""
    steps = len(np.unique(view.device.events.step[bursts.first[mine]]))
    return Finding(
        "MD402",
        phrase("churn.benchmark.title", count=len(mine), bytes=format_bytes(rebuilt)),
        "warning" if steps > MIN_CALLS else "info",
        view.device.device,
        (
            Evidence(phrase("churn.benchmark"), len(mine), "times", _span(view, bursts.first[mine])),
            Evidence(phrase("churn.benchmark.steps"), steps, "steps"),
            Evidence(phrase("churn.given"), int(bursts.bytes[mine].sum()), "bytes"),
            Evidence(phrase("churn.again"), rebuilt, "bytes"),
            *_time(view, bursts, mine),
        ),
        (Fix(phrase("churn.benchmark.fix"), "code", "torch.backends.cudnn.benchmark = False"),),
        weight_bytes=int(bursts.bytes[mine].sum()) // len(mine),
    )


def _growth(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD403: new reserved peaks in the second half of the trace that no new peak of live bytes explains."""
    device, usage = view.device, view.device.usage
    half = _second_half(view)
    if not 0 < half < device.num_events or usage.reserved.min() < 0 or usage.active.min() < 0:
        return
    reserved = int(usage.reserved[half:].max() - usage.reserved[:half].max())
    active = max(int(usage.active[half:].max() - usage.active[:half].max()), 0)
    if reserved < max(GROWTH * int(usage.reserved.max()), FLOOR) or active > reserved / 2:
        return
    opened = half + np.flatnonzero(np.isin(device.events.action[half:], _OPEN))
    late = (half + device.num_events) // 2
    if len(opened) < MIN_OPENED or usage.reserved[late:].max() <= usage.reserved[:late].max():
        return
    yield Finding(
        "MD403",
        phrase("churn.growth.title", reserved=format_bytes(reserved), active=format_bytes(active)),
        "warning",
        device.device,
        (
            Evidence(
                phrase("churn.growth.reserved"),
                reserved,
                "bytes",
                phrase("churn.growth.from", moment=moment_name(device, half)),
            ),
            Evidence(phrase("churn.growth.active"), active, "bytes"),
            Evidence(phrase("churn.growth.opened"), len(opened), "events"),
            *_changing_sizes(view, opened),
        ),
        settings.offers("expandable-segments", "padded-inputs"),
        weight_bytes=reserved,
    )


def _second_half(view: DeviceView) -> int:
    """Returns the event at which the second half begins.

    It is half of the steps if there are at least four, else half of the events.
    """
    steps = view.device.events.step
    highest = int(steps.max())
    if highest < 3:
        return view.device.num_events // 2
    return int(np.argmax(steps > highest // 2))


def _changing_sizes(view: DeviceView, opened: Array) -> Iterator[Evidence]:
    """Yields call sites whose requests reserved the new memory, with their number of sizes in the whole trace."""
    events = view.device.events
    stacks, counts = np.unique(events.stack[opened], return_counts=True)
    allocs = events.action == schema.ALLOC
    for stack in stacks[np.argsort(-counts, kind="stable")][:NUM_PLACES]:
        if stack >= 0:
            sizes = len(np.unique(events.size[allocs & (events.stack == stack)]))
            yield Evidence(phrase("churn.growth.sizes"), sizes, "sizes", view.label(int(stack)))


def _span(view: DeviceView, at: Array) -> str:
    if len(at) == 1:
        return moment_name(view.device, int(at[0]))
    return phrase("churn.span", first=moment_name(view.device, int(at[0])), last=int(at[-1]))


def _per_step(view: DeviceView, at: Array) -> Iterator[Evidence]:
    steps = view.device.events.step
    highest = int(steps.max())
    inside = at[steps[at] >= 0]
    if highest > 0 and len(inside):
        yield Evidence(phrase("churn.per_step"), round(len(inside) / (highest + 1), 2), "times")


def _time(view: DeviceView, bursts: Bursts, rows: Array) -> Iterator[Evidence]:
    time_us = np.append(view.device.events.time_us, -1)
    begin, end = time_us[bursts.first[rows]], time_us[bursts.then[rows]]
    known = (begin >= 0) & (end >= begin)
    if known.any():
        yield Evidence(phrase("churn.time"), int((end - begin)[known].sum()), "us")


def _places(view: DeviceView, stacks: Array, what: str) -> Iterator[Evidence]:
    stack, counts = np.unique(stacks[stacks >= 0], return_counts=True)
    totals: dict[str, int] = {}
    for one, count in zip(stack.tolist(), counts.tolist(), strict=True):
        label = view.label(one)
        totals[label] = totals.get(label, 0) + count
    for label in sorted(totals, key=lambda name: (-totals[name], name))[:NUM_PLACES]:
        yield Evidence(what, totals[label], "times", label)
