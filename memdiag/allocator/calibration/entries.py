"""Infers the calls of a program from the allocator's own entries.

One call can make several entries: a request may release cached segments, wait for other streams and obtain a new
segment before it returns a block. Its alloc (or oom) entry comes last, so the entries directly before it belong to it.
Releases without a following request come from ``empty_cache``. If a request follows, only the next entries show whether
the releases belong to it (``_is_retry``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.calls import EARLIER, LAST, RecordedCalls
from memdiag.allocator.calibration.recorded_settings import Shares
from memdiag.sizes.cuda import SMALL_LIMIT, SMALL_SEGMENT
from memdiag.trace import schema
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

_RELEASES = (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)
_OPENS = (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)
_ROOMY = 0.95  # a device whose known room is filled less has memory for a request, whatever others took between samples


@dataclass(frozen=True)
class Failures:
    """Requests that the driver or a limit refused at first, including those that finally failed; one entry each.

    Attributes:
        at: Event of the request (int64), in order.
        begins: First event that belongs to it.
        before: Reserved bytes before it.
        hidden: Device bytes in use at that time beyond the reserved ones, since the device gives whole pages of 2 MiB.
        need: Additional bytes that it needed, as a limit of the process counts them.
        mapped: Upper bound of the device bytes that it needed; an expandable segment grows by whole pages.
        failed: Whether it finally failed.
        device_free: Free bytes of the device according to the oom entry; -1: unknown.
        oom_at: Events of the requests that finally failed.
        granted: Most bytes that the process would have reserved, in whole segments, after a successful request.
        shares: Settings that are fractions of the device.
    """

    at: Array
    begins: Array
    before: Array
    hidden: Array
    need: Array
    mapped: Array
    failed: Array
    device_free: Array
    oom_at: Array
    granted: int
    shares: Shares
    hidden_after: Array  # as ``hidden``: before the first event, then after each


def calls_of_entries(
    trace: Trace,
    device: DeviceTrace,
    handles: Array,
    pools: tuple[tuple[int, int], ...],
    *,
    collects: bool | None = None,
    asked_for: Collection[int] = (),
    refused: Collection[int] = (),
) -> tuple[RecordedCalls, Failures]:
    """Returns the calls that explain the entries of a recording, and the refused requests among them.

    ``collects``: whether there is garbage collection, which also needs a limit of the process; None: inferred from the
    entries. ``asked_for``: requests that are known not to have released memory themselves, because an ``empty_cache``
    came right before them. ``refused``: requests that are known to have released memory.
    """
    events, tensors = device.events, device.tensors
    parts = _Parts.of(device)
    settings = Shares.of(trace, device)
    if not (_collects(trace, device, parts, settings) if collects is None else collects):
        settings = replace(settings, threshold=0.0)
    retried = _retried(trace, device, parts, settings.threshold)
    retried[list(asked_for)] = False
    retried[list(refused)] = True
    if trace.layout.max_split is None:  # otherwise oversize blocks may be released, even during a graph capture
        retried &= ~_is_captured(device)
    calls = RecordedCalls(handles)

    made = np.flatnonzero((events.action == schema.ALLOC) & (events.tensor >= 0))
    number = {pool: index for index, pool in enumerate(pools)}
    pool_of = np.array(
        [number[int(a), int(b)] for a, b in zip(device.groups.pool_major, device.groups.pool_minor, strict=True)]
        or [0],
        np.int64,
    )
    group = events.group[made]
    pool = np.where(group >= 0, pool_of[np.maximum(group, 0)], 0)
    calls.add(
        w.ALLOC,
        row=made,
        tensor=events.tensor[made],
        size=events.size[made],
        stream=events.stream[made],
        pool=pool,
    )

    # The entry of a failed request has only the rounded size. If the program continued after the failure, a replay that
    # succeeds frees the tensor at once.
    ooms = np.flatnonzero(events.action == schema.OOM)
    pool_of_oom = np.empty(0, np.int64)
    if len(ooms):
        asked = np.maximum(events.size[ooms] - trace.layout.pad, 1)
        row_of = np.searchsorted(device.references.at_event, ooms)
        of = device.references.group[np.minimum(row_of, len(device.references) - 1)]
        numbers = len(tensors) + np.arange(len(ooms))
        pool_of_oom = pool_of[of]
        calls.add(w.ALLOC, row=ooms, tensor=numbers, size=asked, stream=events.stream[ooms], pool=pool_of_oom)
        goes_on = ooms < (made[-1] if len(made) else -1)
        calls.add(w.FREE, row=ooms[goes_on], tensor=numbers[goes_on], rank=LAST)

    late = np.full(device.num_events, -1, np.int64)
    waits = np.flatnonzero(parts.is_late & (parts.request >= 0))
    in_retry = retried[parts.request[waits]] | (events.action[parts.request[waits]] == schema.OOM)
    late[waits[in_retry]] = parts.request[waits[in_retry]]
    calls.add_frees(device, np.flatnonzero(tensors.free_completed_at >= 0), late)
    lives = _lives(
        device,
        parts,
        pool_of,
        (np.concatenate((made, ooms)), np.concatenate((pool, pool_of_oom))),
        trace.layout.max_split,
    )
    _add_pools(calls, lives)
    _add_releases(calls, device, parts, retried, lives, pool_of)
    return calls, _failures(device, parts, retried, trace.layout, settings)


def _is_captured(device: DeviceTrace) -> Array:
    """Returns, per event, whether its pool is used only during graph captures: a pool with an id from torch itself."""
    if not len(device.groups):
        return np.zeros(device.num_events, bool)
    group = device.events.group
    found: Array = (group >= 0) & (device.groups.pool_major[np.maximum(group, 0)] > 0)
    return found


def _collects(trace: Trace, device: DeviceTrace, parts: _Parts, shares: Shares) -> bool:
    """Returns whether garbage collection is probable: a request released only a part of the cached memory."""
    if not shares.threshold or shares.fraction is not None:
        return bool(shares.threshold)
    if trace.layout.max_split is not None:  # oversize blocks are also released one by one
        return False
    own = np.flatnonzero(_retried(trace, device, parts, shares.threshold) & (device.events.action == schema.ALLOC))
    releases = np.flatnonzero(np.isin(device.events.action, _RELEASES))
    return bool(len(own)) and bool((device.usage.cache[releases[np.searchsorted(releases, own) - 1]] > 0).any())


@dataclass(frozen=True)
class _TensorLives:
    """Lifetimes of private pools, one entry each: first use, and first release of their memory."""

    begun: Array
    begun_at: Array
    ended: Array
    ended_at: Array


def _lives(
    device: DeviceTrace, parts: _Parts, pool_of: Array, uses: tuple[Array, Array], max_split: int | None
) -> _TensorLives:
    """Infers the lifetimes of private pools.

    The allocator releases the memory of a private pool only if it has no users; a later use creates a new pool.

    ``uses`` are the requests: events, pools. With a limit on splitting, the memory of a pool can also go for a request
    in it.
    """
    regions = device.regions
    closed = np.flatnonzero((regions.closed_at >= 0) & (regions.closed_at < device.num_events))
    pool, gone = pool_of[regions.group[closed]], regions.closed_at[closed]
    if max_split is not None and len(closed):
        request = parts.request[gone]
        pool_at = np.zeros(device.num_events + 1, np.int64)
        pool_at[uses[0]] = uses[1]
        own = (request >= 0) & (pool_at[request] == pool) & (regions.size[closed] >= max_split)
        pool, gone = pool[~own], gone[~own]
    there = pool_of[regions.group[regions.opened_at < 0]]
    begun: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    for index in np.setdiff1d(np.concatenate((uses[1], pool)), [0]).tolist():
        used = np.sort(uses[0][uses[1] == index])
        events = np.sort(gone[pool == index])
        uses_before = np.searchsorted(used, events)
        lives, first = np.unique(uses_before, return_index=True)
        ended += [(index, int(events[k])) for k in first.tolist()]
        new = (
            lives[lives < len(used)].tolist()
            if index in there
            else [0, *lives[(lives > 0) & (lives < len(used))].tolist()]
        )
        begun += [(index, int(used[k])) for k in new if k < len(used)]
    columns = [np.array([each[k] for each in kind], np.int64) for kind in (begun, ended) for k in (0, 1)]
    return _TensorLives(*columns)


def _add_pools(calls: RecordedCalls, lives: _TensorLives) -> None:
    """Adds a user to each private pool at its first use, because a pool without users counts as released."""
    for op, rank in ((w.POOL_BEGIN, EARLIER - 1), (w.POOL_END, EARLIER)):
        calls.add(op, row=lives.begun_at - 1, pool=lives.begun, place=lives.begun_at, rank=rank)


@dataclass(frozen=True)
class _Parts:
    """The assignment of entries to requests; one value per event.

    Attributes:
        is_late: Whether it completes a free that waited for a stream.
        following: The next event, including itself, that is neither a segment event nor such a free; num_events: none.
        request: ``following`` if that is a request, else -1.
        begins: For a request, the first entry that may belong to it.
        opens, releases: For a request, the number of ranges that it reserved, and of those released right before it.
    """

    is_late: Array
    following: Array
    request: Array
    begins: Array
    opens: Array
    releases: Array

    @classmethod
    def of(cls, device: DeviceTrace) -> _Parts:
        events, n = device.events, device.num_events
        tensor = np.maximum(events.tensor, 0)
        completed = (events.action == schema.FREE_COMPLETED) & (events.tensor >= 0)
        asked = device.tensors.free_requested_at[tensor] if len(device.tensors) else np.zeros(n, np.int64)
        is_late = completed & (asked < np.arange(n) - 1)
        is_segment = np.isin(events.action, _RELEASES + _OPENS)
        other = np.flatnonzero(~(is_late | is_segment))
        at = np.searchsorted(other, np.arange(n))
        following = np.append(other, n)[at]
        is_request = np.append(np.isin(events.action, (schema.ALLOC, schema.OOM)), False)
        request = np.where(is_request[following], following, -1)
        begins = np.append(-1, other)[at] + 1
        counted = [np.concatenate(([0], np.cumsum(np.isin(events.action, kinds)))) for kinds in (_OPENS, _RELEASES)]
        here = np.arange(n)
        opens, releases = (sums[here] - sums[np.minimum(begins, here)] for sums in counted)
        return cls(is_late, following, request, begins, opens, releases)


def _mapped_bytes(device: DeviceTrace, layout: Layout, rounded: Array) -> Array:
    """Returns an upper bound on the device memory that each request needs."""
    if not (device.regions.expandable.any() or device.segments.expandable.any()):
        return allocation_sizes(rounded, layout.large_segment)
    page = np.where(rounded <= SMALL_LIMIT, SMALL_SEGMENT, layout.large_segment)
    mapped: Array = -(-rounded // page) * page
    return mapped


def _reserved_before(device: DeviceTrace, begins: Array) -> Array:
    before: Array = np.where(begins > 0, device.usage.reserved[np.maximum(begins - 1, 0)], device.start["reserved"])
    return before


def _retried(trace: Trace, device: DeviceTrace, parts: _Parts, threshold: float) -> Array:
    """Returns, per event: whether it is a request that released cached segments because the driver had no more memory.

    Garbage collection also releases memory for a request. Releases before a request that then got new memory can also
    be an ``empty_cache`` that the program called just before. They are if their stack shows it, if the request would
    have found a block before them (a retry does not search again), if as much was reserved at another time, or if the
    device had room.
    """
    events, layout, n = device.events, trace.layout, device.num_events
    retried = np.zeros(n, bool)
    doubtful = np.flatnonzero((parts.releases > 0) & ((parts.opens > 0) | (events.action == schema.OOM)))
    doubtful = doubtful[np.isin(events.action[doubtful], (schema.ALLOC, schema.OOM))]
    if not len(doubtful):
        return retried
    references = device.references
    row = np.minimum(np.searchsorted(references.at_event, doubtful), max(len(references) - 1, 0))
    known = len(references) > 0
    fitted = (
        (references.at_event[row] == doubtful) & (references.largest_free[row] >= references.size[row])
        if known
        else False
    )
    if layout.max_split is not None and known:  # larger blocks may have been refused for the request
        fitted &= references.largest_free[row] < layout.max_split
    failed = events.action[doubtful] == schema.OOM
    rounded = np.where(failed, events.size[doubtful], layout.round_size(events.size[doubtful]))
    hidden = _hidden_bytes(device, layout)
    need = (
        _reserved_before(device, parts.begins[doubtful])
        + hidden[parts.begins[doubtful]]
        + allocation_sizes(rounded, layout.large_segment)
    )
    most = max(int((device.usage.reserved + hidden[1:-1]).max(initial=0)), device.start["reserved"] + int(hidden[0]))
    releases = np.flatnonzero(np.isin(events.action, _RELEASES))
    stack = events.stack[releases[np.searchsorted(releases, doubtful) - 1]]
    stacks = trace.stacks
    asked_for = np.append(
        stacks.with_frame(np.array([frame.name == "empty_cache" for frame in stacks.frames], bool)), False
    )[stack]
    of_request = (stack >= 0) & (stack == events.stack[doubtful])
    limit = _reserved_before(device, parts.begins[doubtful]) / threshold if threshold else need
    has_room = np.maximum(need, limit) <= _ROOMY * (device.room_bytes or 0)
    retried[doubtful] = failed | (~asked_for & ~has_room & ~fitted & (of_request | (np.maximum(need, limit) > most)))
    return retried


def _add_releases(
    calls: RecordedCalls, device: DeviceTrace, parts: _Parts, retried: Array, lives: _TensorLives, pool_of: Array
) -> None:
    """Adds EMPTY_CACHE for each burst of releases without a request, and the end of released private pools."""
    events = device.events
    releases = np.flatnonzero(np.isin(events.action, _RELEASES))
    if not len(releases):
        return
    request = parts.request[releases]
    of_request = (request >= 0) & retried[np.maximum(request, 0)]
    burst = parts.following[releases]
    last = np.append(burst[1:] != burst[:-1], True)
    alone = releases[last & ~of_request]
    pool = _pools_of(device, releases, pool_of)
    if len(lives.ended):
        number = np.searchsorted(releases, lives.ended_at)
        home = burst[number]
        # The end of a pool shows only in the release of its memory, so it comes before that burst, or before the
        # burst's request.
        place = np.where(of_request[number], home, releases[last][np.searchsorted(burst[last], home)])
        calls.add(w.POOL_RELEASE, row=place, pool=lives.ended, size=of_request[number], rank=EARLIER)
        # Memory of the default pool or of earlier ended pools in the same burst was released by a separate call.
        num = len(pool_of) + 1
        with_more = np.unique(burst[~np.isin(burst * num + pool, home * num + lives.ended)])
        alone = alone[np.isin(parts.following[alone], with_more) | ~np.isin(parts.following[alone], home)]
    calls.add(w.EMPTY_CACHE, row=alone)


def _pools_of(device: DeviceTrace, releases: Array, pool_of: Array) -> Array:
    """Returns the pool (index) of the memory of each release; 0 if unknown."""
    regions = device.regions
    order = np.argsort(regions.closed_at, kind="stable")
    if not len(order):
        return np.zeros(len(releases), np.int64)
    row = order[np.minimum(np.searchsorted(regions.closed_at[order], releases), len(order) - 1)]
    found: Array = np.where(regions.closed_at[row] == releases, pool_of[regions.group[row]], 0)
    return found


def _failures(device: DeviceTrace, parts: _Parts, retried: Array, layout: Layout, shares: Shares) -> Failures:
    events, reserved, n = device.events, device.usage.reserved, device.num_events
    at = np.flatnonzero(retried | (events.action == schema.OOM))
    failed = events.action[at] == schema.OOM
    rounded = np.where(failed, events.size[at], layout.round_size(events.size[at]))
    begins = parts.begins[at]
    # Bytes left after everything was released, according to the oom entry.
    before = np.where(failed, reserved[at] if len(at) else 0, _reserved_before(device, begins))
    # The limit is compared with whole segments, even if an expandable segment grows by more or less than that.
    opened = np.where(np.isin(events.action, _OPENS), events.size, 0)
    grown = np.flatnonzero((parts.request == np.arange(n)) & (parts.opens > 0) & (events.action == schema.ALLOC))
    sums = np.concatenate(([0], np.cumsum(opened)))
    held = reserved[grown] - (sums[grown] - sums[np.minimum(parts.begins[grown], grown)])
    granted = int((held + allocation_sizes(layout.round_size(events.size[grown]), layout.large_segment)).max(initial=0))
    hidden = _hidden_bytes(device, layout)
    return Failures(
        at=at,
        begins=begins,
        before=before,
        hidden=hidden[np.where(failed, at, begins - 1) + 1],
        hidden_after=hidden,
        need=allocation_sizes(rounded, layout.large_segment),
        mapped=_mapped_bytes(device, layout, rounded),
        failed=failed,
        device_free=np.where(failed, events.addr[at], -1),
        oom_at=at[failed],
        granted=granted,
        shares=shares,
    )


def _hidden_bytes(device: DeviceTrace, layout: Layout) -> Array:
    """Returns the device bytes beyond the reserved ones, in whole pages: before the first event, then after each."""
    regions, n = device.regions, device.num_events
    page = np.where(
        regions.expandable,
        np.where(device.groups.small[regions.group], SMALL_SEGMENT, layout.large_segment),
        regions.size,
    )
    page = np.maximum(page, 1)
    beyond = regions.size // page * (-(-page // SMALL_SEGMENT) * SMALL_SEGMENT - page)
    change = np.zeros(n + 2, np.int64)
    np.add.at(change, np.clip(regions.opened_at, -1, n) + 1, beyond)
    np.add.at(change, np.clip(regions.closed_at, -1, n) + 1, -beyond)
    total: Array = np.cumsum(change)
    return total
