"""The trace model that all analyzers, policies and renderers work on.

A trace records one or more devices: events in the allocator's order, tensors (one lifecycle each), ranges of memory
reserved from the driver, and the bytes after every event. It is immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memdiag.registry import in_notebook
from memdiag.results.finding import Note
from memdiag.results.libraries import LibraryMemory
from memdiag.results.shared_cards import Neighbour
from memdiag.trace import schema
from memdiag.trace.card import Card
from memdiag.trace.layout import Layout
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array, Table
from memdiag.trace.topology import Topology, topology_at


@dataclass(frozen=True)
class DeviceTrace:
    """One device's part of a trace. Tables are described in ``memdiag.trace.schema``.

    Attributes:
        device: Device index from the file.
        has_addresses: Whether addresses are known; without them there are no regions and no fragmentation.
        start: Bytes before the first event: reserved, allocated, active, requested; -1 if unknown.
        anomalies: Counts of contradictions in the file, by kind ("double_free": 3).
        capacity_bytes: Total bytes of the device, or None if unknown.
        card: Memory outside the allocator and the per-process memory fraction, if recorded.
        samples: Memory of the device over time, from its driver (``schema.SAMPLES``).
        has_final_state: Whether the file lists its own segments (``segments``, ``blocks``).
        num_uncertain_blocks: Blocks from before the trace that may be up to 1 MiB larger than the rounded request. The
            allocator does not split off a remainder up to this size, and the file does not record the block size.
    """

    device: int
    events: Table
    usage: Table
    references: Table
    tensors: Table
    regions: Table
    groups: Table
    segments: Table
    blocks: Table
    has_addresses: bool
    start: Mapping[str, int]
    anomalies: Mapping[str, int] = field(default_factory=dict)
    capacity_bytes: int | None = None
    card: Card = field(default_factory=Card)
    samples: Table = field(default_factory=lambda: Table.empty(schema.SAMPLES))
    has_final_state: bool = False
    num_uncertain_blocks: int = 0

    @property
    def room_bytes(self) -> int | None:
        """Bytes that the allocator could reserve according to the recorder's samples, or None if they do not tell."""
        outside, fraction = self.card.outside_bytes, self.card.fraction
        if self.capacity_bytes is None or outside is None or fraction is None:
            return None
        return min(int(fraction * self.capacity_bytes), self.capacity_bytes - outside)

    @property
    def end(self) -> dict[str, int]:
        """Bytes at the end: from the file's own segments and blocks, else after the last event; -1 if unknown."""
        if not self.has_final_state:
            return self.usage_at(self.num_events - 1)
        blocks, segments = self.blocks, self.segments

        def total(name: str, states: tuple[int, ...]) -> int:
            """Returns the sum over segments if they record it, else over blocks, or -1."""
            said = segments[name]
            if not (said >= 0).all():
                return int(blocks.size[np.isin(blocks.state, states)].sum()) if len(blocks) else -1
            return int(said.sum())

        allocated = total("allocated_size", (schema.ACTIVE_ALLOCATED,))
        active = total("active_size", (schema.ACTIVE_ALLOCATED, schema.ACTIVE_PENDING_FREE))
        # Segments count pending bytes as requested too, so bytes requested by live tensors come from blocks.
        asked = np.where(blocks.requested_size >= 0, blocks.requested_size, blocks.size)
        requested = int(asked[blocks.state == schema.ACTIVE_ALLOCATED].sum())
        if not len(blocks) and len(segments):
            requested = int(segments.requested_size.sum()) if (segments.requested_size >= 0).all() else -1
        return {
            "reserved": int(segments.total_size.sum()),
            "allocated": allocated,
            "active": active,
            "requested": requested,
        }

    @property
    def num_events(self) -> int:
        """Number of entries of the trace."""
        return len(self.events)

    @property
    def most_held_bytes(self) -> int:
        """The peak of reserved or allocated bytes, including the beginning and the end; -1 if neither is known."""
        curves = (self.usage.reserved, self.usage.allocated)
        return max(*(int(curve.max(initial=-1)) for curve in curves), *self.start.values(), *self.end.values())

    def usage_at(self, at: int) -> dict[str, int]:
        """Returns reserved, allocated, active and requested bytes after event ``at`` (-1: before the first event).

        A value is -1 if unknown.
        """
        if at < 0:
            return dict(self.start)
        return {name: int(self.usage[name][at]) for name in ("reserved", "allocated", "active", "requested")}

    def live(self, at: int, *, pending: bool = False) -> Array:
        """Returns the rows of tensors live after event ``at`` (-1: before the first event).

        With ``pending``, tensors that were freed but wait for a stream are included.
        """
        gone = self.tensors.free_completed_at if pending else self.tensors.free_requested_at
        return np.flatnonzero((self.tensors.alloc_at <= at) & (gone > at))

    def peak(self, curve: str) -> int:
        """Returns the first event at which ``curve`` ("reserved", "allocated", …) is highest; -1: before the trace."""
        values = self.usage[curve]
        if not len(values):
            return -1
        best = int(np.argmax(values))
        return best if values[best] > self.start[curve] else -1

    def topology(self, at: int) -> Topology:
        """Returns segments and blocks after event ``at`` (-1: before the first event)."""
        return topology_at(self.regions, self.tensors, at)


TENSORS_OF_ALL = {"device": schema.Column("int32", "", "index of the device"), **schema.TENSORS}


@dataclass(frozen=True)
class Trace:
    """A trace.

    Attributes:
        path: File that it was read from.
        format: Name of the source, a key of ``memdiag.registry.SOURCES``.
        backend: "cuda", "npu", "xpu", "cpu" …, or None if unknown.
        torch_version: Version recorded in the file; a guess ends in "?"; None if unknown.
        phantom: True if recorded on a simulated device.
        settings: Allocator settings recorded in the file ("PYTORCH_CUDA_ALLOC_CONF": raw text, …); empty if unknown.
        strings: Names used by annotations and by ``event_strings``.
        annotations: Named spans (``schema.ANNOTATIONS``).
        bases: How phases, steps and categories were found: "marks", "annotations", "stacks", "periodicity" or "none".
        notes: Limits of the diagnosis.
        complete_from_start: Whether the trace begins with an empty allocator, or None if unknown.
        layout: Sizes that the allocator used.
        recorded: Marks of a recorder, as in the file; None if it was not recorded by memdiag.
        libraries: What communication libraries hold outside the allocator, from their logs.
        neighbours: Other processes of the run on the card on which this one ran out of memory last.
        host: Pinned host memory in the form of a device without addresses; None if the file has none.
        host_samples: Memory of the host over time (``schema.HOST_SAMPLES``).
    """

    path: str
    format: str
    backend: str | None
    devices: tuple[DeviceTrace, ...]
    stacks: Stacks = field(default_factory=Stacks.empty)
    torch_version: str | None = None
    phantom: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    strings: tuple[str, ...] = ()
    annotations: Table = field(default_factory=lambda: Table.empty(schema.ANNOTATIONS))
    bases: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    complete_from_start: bool | None = None
    layout: Layout = field(default_factory=Layout)
    recorded: ProcessMarks | None = None
    libraries: tuple[LibraryMemory, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    host: DeviceTrace | None = None
    host_samples: Table = field(default_factory=lambda: Table.empty(schema.HOST_SAMPLES))

    @property
    def num_events(self) -> int:
        """Number of entries of all devices."""
        return sum(device.num_events for device in self.devices)

    @property
    def num_tensors(self) -> int:
        """Number of lifecycles of all devices."""
        return sum(len(device.tensors) for device in self.devices)

    @cached_property
    def tensors(self) -> Table:
        """All lifecycles of all devices, with a column ``device``."""
        parts = [
            {"device": np.full(len(d.tensors), d.device, np.int32), **{c: d.tensors[c] for c in d.tensors}}
            for d in self.devices
        ]
        if not parts:
            return Table.empty(TENSORS_OF_ALL)
        return Table(TENSORS_OF_ALL, {c: np.concatenate([part[c] for part in parts]) for c in TENSORS_OF_ALL})

    def _repr_html_(self) -> str:
        """Returns this result for a notebook."""
        return in_notebook(self)
