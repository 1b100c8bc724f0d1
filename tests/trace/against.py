"""Compares a device of memdiag's trace with the checker's independent reconstruction, at every requested event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memdiag.trace.free_split import split_at
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace
from tests.checker import Checker, Sizes
from tests.intervals import Group, Moment, split


def sizes_of(layout: Layout) -> Sizes:
    """Returns the settings of the layout in the checker's form."""
    return Sizes(layout.pad, layout.divisions, layout.max_split, layout.large_segment, layout.expandable)


def groups_of(device: DeviceTrace) -> list[Group]:
    """Returns the rows of ``groups``."""
    g = device.groups
    rows = zip(g.pool_major.tolist(), g.pool_minor.tolist(), g.small.tolist(), g.stream.tolist(), strict=True)
    return [Group((major, minor), small, stream) for major, minor, small, stream in rows]


def lifecycles(device: DeviceTrace) -> set[tuple[Any, ...]]:
    """Returns every tensor as a tuple."""
    groups, t = groups_of(device), device.tensors
    columns = (t.addr, t.block_bytes, t.requested_bytes, t.alloc_at, t.free_requested_at, t.free_completed_at)
    return {(*row, groups[group]) for *row, group in zip(*(c.tolist() for c in columns), t.group.tolist(), strict=True)}


def compare_lifecycles(device: DeviceTrace, checker: Checker) -> None:
    """Compares every tensor: address, block, request, allocation, both events of its free, pool and stream."""
    expected = {
        (b.address, b.size, b.requested, b.alloc_at, b.free_requested_at, b.free_completed_at, b.group)
        for b in checker.blocks
    }
    assert lifecycles(device) == expected
    assert len(device.tensors) == len(checker.blocks)


def compare_references(device: DeviceTrace, checker: Checker) -> None:
    """Compares all reference requests."""
    groups, r = groups_of(device), device.references
    found = [
        (at, size, groups[group])
        for at, size, group in zip(r.at_event.tolist(), r.size.tolist(), r.group.tolist(), strict=True)
    ]
    assert found == [(reference.at, reference.size, reference.group) for reference in checker.references]


def compare_moment(device: DeviceTrace, checker: Checker, at: int, moment: Moment) -> None:
    """Compares sums, segments, blocks and the split of free memory after one event."""
    usage = device.usage_at(at)
    assert usage == {name: getattr(moment, name) for name in ("reserved", "allocated", "active", "requested")}, (
        f"event {at}"
    )

    groups, topology = groups_of(device), device.topology(at)
    segments = topology.segments
    found = list(
        zip(
            segments["start"].tolist(),
            segments["size"].tolist(),
            (groups[g] for g in segments["group"].tolist()),
            strict=True,
        )
    )
    assert found == [(s.start, s.end - s.start, s.group) for s in moment.segments], f"event {at}"
    blocks = topology.blocks
    rows = zip(
        blocks["address"].tolist(),
        blocks["size"].tolist(),
        blocks["tensor"].tolist(),
        blocks["pending"].tolist(),
        strict=True,
    )
    states = {
        (address, size, "free" if tensor < 0 else "pending" if pending else "live")
        for address, size, tensor, pending in rows
    }
    expected = {(address, size, "pending" if pending else "live") for address, size, _, pending in moment.blocks}
    assert states == expected | {(start, end - start, "free") for start, end, _ in moment.free()}, f"event {at}"

    reference = checker.reference_at(at)
    if reference is None or at < 0:
        return
    page = checker.sizes.page
    cache, stranded, foreign, largest = split(moment, reference, page)
    u = device.usage
    assert (u.cache[at], u.stranded[at], u.foreign[at]) == (cache, stranded, foreign), f"event {at}"
    group = int(device.references.group[u.reference[at]])
    again = split_at(device, at, reference.size, group, page)
    assert (again.cache, again.stranded, again.foreign, again.largest_free) == (cache, stranded, foreign, largest), (
        f"event {at}"
    )
    # All parts of the reserved memory add up.
    rounding, pending = moment.allocated - moment.requested, moment.active - moment.allocated
    assert moment.reserved - moment.requested == rounding + pending + stranded + foreign + cache, f"event {at}"


def compare_largest_free(device: DeviceTrace, checker: Checker) -> None:
    """Compares the largest free range in the reference's pool and stream just before its first entry."""
    r = device.references
    before = {int(opened) - 1 for opened in r.opened_at}
    moments = checker.moments(before)
    for row, reference in enumerate(checker.references):
        moment = moments[int(r.opened_at[row]) - 1]
        expected = max((end - start for start, end, s in moment.free() if s.group == reference.group), default=0)
        assert int(r.largest_free[row]) == expected, f"reference {row} at event {reference.at}"


def compare(device: DeviceTrace, checker: Checker, events: Iterable[int] | None = None) -> None:
    """Compares everything at ``events``, or at every event if None."""
    wanted = range(-1, device.num_events) if events is None else events
    compare_lifecycles(device, checker)
    compare_references(device, checker)
    for at, moment in checker.moments(wanted).items():
        compare_moment(device, checker, at, moment)
    compare_largest_free(device, checker)
