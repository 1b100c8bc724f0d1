"""The answer to ``memdiag analyze --would-fit SIZE``: whether the allocator can serve a tensor at the report's moment.

The allocator tries three ways in turn: a free block of the same pool and stream, a new segment, and a new segment after
it has released all cached segments (a retry).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.fit import Fit, would_fit
from memdiag.analyzers.support.moments import DeviceMoment, look, reference_at, segment_bytes
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import group_name, when
from memdiag.results.would_fit import FitAnswer, WouldFit
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.text import Phrase, phrase
from memdiag.trace.free_split import whole_bytes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.topology import Topology
from memdiag.units import format_bytes

NUM_NAMED = 3  # of the blocking tensors


def answers(trace: Trace, context: Context, requested: int) -> tuple[WouldFit, ...]:
    """Returns the answer for a tensor of ``requested`` bytes, for each device at its moment."""
    settings = AllocatorSettings.of(trace)
    return tuple(answer(look(view, settings), requested) for view in context.views(trace))


def answer(here: DeviceMoment, requested: int) -> WouldFit:
    """Returns the answer for a tensor of ``requested`` bytes on one device."""
    device, settings = here.device, here.settings
    request = int(settings.layout.round_size(np.array([requested]))[0])
    base = partial(WouldFit, device.device, requested, request, here.at if device.num_events else None)
    asked = {"bytes": format_bytes(requested), "when": when(here.view)}
    if not device.has_addresses:
        return base(answer="unknown", explanation=phrase("would_fit.unknown.places", **asked))
    topology, group = device.topology(here.at), _group_of(device, here.at, request)
    fit = would_fit(topology, group, request, settings.layout.max_split)
    pool = group_name(device, group) if group >= 0 else phrase("would_fit.new-pool")
    wanted, full = _new_bytes(here, topology, group, request)
    driver, is_exact = _driver_free(here)
    released = _released_bytes(device, topology, settings.page_bytes(small=True), settings.page_bytes(small=False))
    kind, missing = _kind(fit, wanted, full, driver, released)
    values = {**asked, "largest": format_bytes(fit.largest_free_bytes), "pool": pool, "new": format_bytes(wanted)}
    values |= {"driver": format_bytes(driver), "released": format_bytes(released), "missing": format_bytes(missing)}
    return base(
        answer=kind,
        explanation=phrase(f"would_fit.answer.{kind}", **values),
        pool=pool,
        free_bytes=fit.free_bytes,
        num_free=fit.num_free,
        largest_free_bytes=fit.largest_free_bytes,
        largest_free_shortfall_bytes=fit.missing_bytes,
        closest_range_bytes=fit.range_bytes,
        blocking_bytes=fit.between_bytes,
        num_blocking_tensors=len(fit.between),
        blocking_tensors=_names(here.view, fit),
        new_segment_bytes=wanted,
        driver_free_bytes=driver,
        released_bytes=released,
        shortfall_bytes=missing,
        details=tuple(_details(fit, values, is_exact=is_exact, between=_names(here.view, fit))),
    )


def _group_of(device: DeviceTrace, at: int, request: int) -> int:
    """Returns the pool and stream that would serve the request (a row of Groups, or -1 for a pool without memory).

    They are those of the reference request, in the size class of this one, else the default ones.
    """
    groups = device.groups
    if not len(groups):
        return -1
    _, _, reference = reference_at(device, at)
    major, minor, stream = (
        int(groups[name][reference]) if reference >= 0 else 0 for name in ("pool_major", "pool_minor", "stream")
    )
    same = (groups.pool_major == major) & (groups.pool_minor == minor) & (groups.stream == stream)
    found = np.flatnonzero(same & (groups.small == (request <= SMALL_LIMIT)))
    return int(found[0]) if len(found) else -1


def _new_bytes(here: DeviceMoment, topology: Topology, group: int, request: int) -> tuple[int, int]:
    """Returns the bytes that the driver must provide: now, and after a retry.

    An expandable segment grows from the free range at its end.
    """
    size = segment_bytes(request, here.settings)
    if not here.settings.expandable:
        return size, size
    page = here.settings.page_bytes(small=request <= SMALL_LIMIT)
    blocks, segments = topology.blocks, topology.segments
    mine = np.flatnonzero((segments["group"] == group) & segments["expandable"])
    tail = 0
    if len(mine):
        last = np.flatnonzero(blocks["segment"] == mine[-1])[-1]
        tail = int(blocks["size"][last]) if blocks["tensor"][last] < 0 else 0
    return -(-max(size - tail, 0) // page) * page, -(-size // page) * page


def _driver_free(here: DeviceMoment) -> tuple[int | None, bool]:
    """Returns the driver's remaining memory at the moment, or None, and whether it is exact or an upper bound."""
    device, reserved = here.device, here.usage["reserved"]
    capacity, outside, share = device.capacity_bytes, device.card.outside_bytes, device.card.fraction
    found = [] if here.device_free_bytes is None else [here.device_free_bytes]
    if capacity is not None and reserved >= 0:
        found.append(capacity - (outside or 0) - reserved)
        if share is not None:
            found.append(int(share * capacity) - reserved)
    is_exact = here.device_free_bytes is not None or outside is not None
    return (max(min(found), 0), is_exact) if found else (None, False)


def _released_bytes(device: DeviceTrace, topology: Topology, small_page: int, large_page: int) -> int:
    """Returns the bytes that a retry releases: unused segments and pages of the default pool.

    It waits for streams, so pending blocks count.
    """
    blocks, segments, groups = topology.blocks, topology.segments, device.groups
    idle = (blocks["tensor"] < 0) | blocks["pending"].astype(bool)
    rows = np.flatnonzero(idle)
    if not len(rows):
        return 0
    follows = np.zeros(len(rows), bool)
    follows[1:] = (np.diff(rows) == 1) & (np.diff(blocks["segment"][rows]) == 0)
    first = np.flatnonzero(~follows)
    home = blocks["segment"][rows[first]]
    start, size = blocks["address"][rows[first]], np.add.reduceat(blocks["size"][rows], first)
    group = segments["group"][home]
    small = np.asarray(groups.small, bool)[group] if len(groups) else np.zeros(len(home), bool)
    private = ((groups.pool_major != 0) | (groups.pool_minor != 0))[group] if len(groups) else np.zeros(len(home), bool)
    page = np.where(small, small_page, large_page)
    whole = whole_bytes(
        segments["start"][home], segments["size"][home], start, size, segments["expandable"][home], page
    )
    return int(whole[~private].sum())


def _kind(fit: Fit, wanted: int, full: int, driver: int | None, released: int) -> tuple[FitAnswer, int | None]:
    """Returns the answer, and the bytes that the driver lacks, or None if unknown."""
    if fit.fits:
        return "cache", 0
    if driver is None:
        return "unknown", None
    if wanted <= driver:
        return "segment", 0
    if full <= driver + released:
        return "retry", 0
    return "no", full - driver - released


def _names(view: DeviceView, fit: Fit) -> tuple[str, ...]:
    """Returns size and call site of the largest blocking tensors."""
    tensors = view.device.tensors
    largest = sorted(fit.between.tolist(), key=lambda row: (-int(tensors.block_bytes[row]), row))[:NUM_NAMED]
    said = (
        (int(tensors.block_bytes[row]), place_of(view, np.array([row]), view.label(int(tensors.stack[row]))))
        for row in largest
    )
    return tuple(f"{format_bytes(size)} {place}".rstrip() for size, place in said)


def _details(fit: Fit, values: Mapping[str, str], *, is_exact: bool, between: Iterable[str]) -> Iterable[Phrase]:
    yield phrase(
        "would_fit.free",
        pool=values["pool"],
        bytes=format_bytes(fit.free_bytes),
        count=fit.num_free,
        largest=values["largest"],
    )
    if fit.fits:
        return
    if fit.range_bytes and len(fit.between):
        range_values = {
            "bytes": format_bytes(fit.between_bytes),
            "range": format_bytes(fit.range_bytes),
            "count": len(fit.between),
        }
        yield phrase("would_fit.between", **range_values, names=", ".join(between))
    elif not fit.range_bytes:
        yield phrase("would_fit.no-range")
    if values["driver"] == "unknown":
        return
    yield phrase(
        "would_fit.driver" if is_exact else "would_fit.driver.most", new=values["new"], driver=values["driver"]
    )
