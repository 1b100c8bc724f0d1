"""The few live bytes that keep much reserved memory from being released, and their owners.

The allocator releases whole segments to the driver (whole pages, for expandable segments). One small live tensor keeps
the whole segment or page reserved. The report names the tensor that stays live longest in each, since it cannot be
released before that tensor is freed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.trace.schema import LIFETIMES
from memdiag.trace.table import Array
from memdiag.trace.topology import Topology

# A segment or page counts as pinned if live blocks fill at most this fraction of it.
FEW = 0.25


@dataclass(frozen=True)
class Pin:
    """Tensors of one call site and one lifetime class that pin segments or pages.

    Attributes:
        label: Short name of their stack, or "" if unknown.
        place: Their names, if known, and that label.
        lifetime: Index into LIFETIMES.
        num_tensors: Number of pinning tensors.
        tensor_bytes: Bytes of their blocks.
        num_pieces: Segments or pages that they pin.
        held_bytes: Unusable free bytes in these.
        oldest_alloc_at: Allocation event of the oldest; -1: before the trace.
        rows: Those tensors (rows of Tensors).
    """

    label: str
    place: str
    lifetime: int
    num_tensors: int
    tensor_bytes: int
    num_pieces: int
    held_bytes: int
    oldest_alloc_at: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Pinned:
    """All pinned segments or pages at one moment, and their pins, most held bytes first."""

    num_pieces: int
    live_bytes: int
    held_bytes: int
    pages: bool  # the units are pages of expandable segments (else whole segments)
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class _Pieces:
    """The units that the allocator can release: each segment, or each page of an expandable one."""

    first: Array  # per segment: its first unit
    unit: Array  # per segment: bytes of a unit
    bytes: Array  # per unit
    start: Array  # per segment: address

    @classmethod
    def of(cls, topology: Topology, small_groups: Array, settings: AllocatorSettings) -> _Pieces:
        size, group = topology.segments["size"], topology.segments["group"]
        small = (group >= 0) & small_groups[group] if len(small_groups) else np.zeros(len(size), bool)
        page = np.where(small, settings.page_bytes(small=True), settings.page_bytes(small=False))
        unit = np.where(topology.segments["expandable"], page, np.maximum(size, 1))
        count = -(-size // unit)
        first = np.concatenate(([0], np.cumsum(count)))[:-1]
        bytes_of = np.repeat(unit, count)
        ends = np.cumsum(count) - 1
        bytes_of[ends[count > 0]] = (size - (count - 1) * unit)[count > 0]
        return cls(first, unit, bytes_of, topology.segments["start"])

    def of_address(self, segment: Array, address: Array) -> Array:
        """Returns the unit that contains each address."""
        pieces: Array = self.first[segment] + (address - self.start[segment]) // self.unit[segment]
        return pieces

    def covered(self, segment: Array, address: Array, size: Array) -> Array:
        """Returns the bytes of every unit that the given blocks cover."""
        num = len(self.bytes)
        head, tail = self.of_address(segment, address), self.of_address(segment, address + size - 1)
        inner = np.zeros(num + 1, np.int64)
        np.add.at(inner, head + 1, 1)
        np.add.at(inner, np.maximum(tail, head + 1), -1)
        result = np.where(np.cumsum(inner)[:num] > 0, self.bytes, 0)
        tail_start = self.start[segment] + (tail - self.first[segment]) * self.unit[segment]
        head_end = self.start[segment] + (head + 1 - self.first[segment]) * self.unit[segment]
        apart = head != tail
        np.add.at(result, head, np.where(apart, head_end - address, size))
        np.add.at(result, tail[apart], (address + size - tail_start)[apart])
        return result


def pinned(
    view: DeviceView, topology: Topology, settings: AllocatorSettings, group: int, request_bytes: int
) -> Pinned | None:
    """Returns the pinned units at the moment of ``topology``, or None.

    Args:
        view: The device.
        topology: Its segments and blocks at that moment.
        settings: Allocator settings (the size of a page).
        group: Pool and stream of the reference request, or -1. A free range there that is large enough for it is usable
            cache, and does not count as held.
        request_bytes: The rounded reference request.
    """
    tensors = view.device.tensors
    segment, address, size = (topology.blocks[name] for name in ("segment", "address", "size"))
    tensor = topology.blocks["tensor"]
    if not len(segment):
        return None
    pieces = _Pieces.of(topology, view.device.groups.small, settings)
    live = tensor >= 0
    useful = ~live & (topology.segments["group"][segment] == group) & (size >= request_bytes)
    filled = pieces.covered(segment[live], address[live], size[live])
    held = pieces.bytes - filled - pieces.covered(segment[useful], address[useful], size[useful])
    chosen = (filled > 0) & (filled <= FEW * pieces.bytes) & (held > 0)
    if not chosen.any():
        return None
    # A unit inside one block is full, so the tensors of a pinned unit have their first or last byte in it.
    head = pieces.of_address(segment[live], address[live])
    tail = pieces.of_address(segment[live], address[live] + size[live] - 1)
    ends, rows = np.concatenate((head, tail)), np.concatenate((tensor[live], tensor[live]))
    rows, ends = rows[chosen[ends]], ends[chosen[ends]]
    order = np.lexsort((tensors.alloc_at[rows], -tensors.free_completed_at[rows], ends))
    piece, where = np.unique(ends[order], return_index=True)
    pins = _by_site(view, rows[order][where], held[piece])
    expandable = bool(topology.segments["expandable"].any())
    return Pinned(int(chosen.sum()), int(filled[chosen].sum()), int(held[chosen].sum()), expandable, pins)


def _by_site(view: DeviceView, rows: Array, held: Array) -> tuple[Pin, ...]:
    """Groups pins by label and lifetime, most held bytes first. ``rows`` and ``held`` have one entry per unit."""
    tensors = view.device.tensors
    labels = {int(stack): view.label(int(stack)) for stack in np.unique(tensors.stack[rows])}
    names = sorted(set(labels.values()))
    number = {stack: names.index(label) for stack, label in labels.items()}
    key = (
        np.array([number[int(stack)] for stack in tensors.stack[rows]], np.int64) * len(LIFETIMES)
        + tensors.lifetime[rows]
    )
    pins = []
    for value in np.unique(key):
        mine = key == value
        distinct = np.unique(rows[mine])
        label = names[int(value) // len(LIFETIMES)]
        pins.append(
            Pin(
                label,
                place_of(view, distinct, label),
                int(value) % len(LIFETIMES),
                len(distinct),
                int(tensors.block_bytes[distinct].sum()),
                int(mine.sum()),
                int(held[mine].sum()),
                int(tensors.alloc_at[distinct].min()),
                tuple(distinct.tolist()),
            )
        )
    return tuple(sorted(pins, key=lambda pin: (-pin.held_bytes, pin.label)))


def idle_by_group(view: DeviceView, topology: Topology, settings: AllocatorSettings) -> dict[int, int]:
    """Returns, per row of Groups, the free bytes in partly used segments (pages, if expandable)."""
    segment, address, size = (topology.blocks[name] for name in ("segment", "address", "size"))
    live = topology.blocks["tensor"] >= 0
    pieces = _Pieces.of(topology, view.device.groups.small, settings)
    filled = pieces.covered(segment[live], address[live], size[live])
    idle = np.where(filled > 0, pieces.bytes - filled, 0)
    sums = np.add.reduceat(np.append(idle, 0), pieces.first) if len(pieces.first) else np.empty(0, np.int64)
    groups = topology.segments["group"]
    return {int(group): int(sums[groups == group].sum()) for group in np.unique(groups)}
