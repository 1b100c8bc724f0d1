"""The one model of a trace that every analyzer, policy and renderer works on.

A trace is what happened on one or more devices: events in the order of the allocator, the tensors whose lifecycles they
are, the ranges of memory held from the driver, and the bytes after every event. Nothing in it can be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memdiag.results.finding import Note
from memdiag.trace import schema
from memdiag.trace.card import Card
from memdiag.trace.layout import Layout
from memdiag.trace.recording import Recorded
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array, Table
from memdiag.trace.topology import Topology, topology_at


@dataclass(frozen=True)
class DeviceTrace:
    """One device's part of a trace. Tables are described in ``memdiag.trace.schema``.

    Attributes:
        device: Index of the device, as the file has it.
        has_addresses: Whether places in memory are known; without them there are no regions and no fragmentation.
        start: Bytes before the first event: reserved, allocated, active, requested; -1 where unknown.
        anomalies: What did not fit together, by kind, with counts ("double_free": 3).
        capacity_bytes: Bytes of the device, all of it (the card); None: unknown.
        card: What of it lay outside the allocator, and which share the process may use, as far as recorded.
        has_final_state: The file lists segments of its own (``segments``, ``blocks``).
        num_uncertain_blocks: Blocks from before the trace of which the file does not tell whether they are up to 1 MiB larger than the
            rounded request (what is left of a free block after such a request is not split off if it is no more than that).
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
    has_final_state: bool = False
    num_uncertain_blocks: int = 0

    @property
    def end(self) -> dict[str, int]:
        """Bytes at the end: as the file's own segments and blocks have them, else after the last event; -1: unknown."""
        if not self.has_final_state:
            return self.usage_at(self.num_events - 1)
        blocks, segments = self.blocks, self.segments

        def total(name: str, states: tuple[int, ...]) -> int:
            """Sum over segments, where they give it; else over blocks; -1: neither tells."""
            said = segments[name]
            if not (said >= 0).all():
                return int(blocks.size[np.isin(blocks.state, states)].sum()) if len(blocks) else -1
            return int(said.sum())

        allocated = total("allocated_size", (schema.ACTIVE_ALLOCATED,))
        active = total("active_size", (schema.ACTIVE_ALLOCATED, schema.ACTIVE_PENDING_FREE))
        # Segments count what is pending as requested too: only blocks tell what live tensors asked for.
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
        """Entries of the trace."""
        return len(self.events)

    @property
    def most_held_bytes(self) -> int:
        """The most that was reserved or allocated at any moment, the beginning and the end included; -1: neither is known."""
        curves = (self.usage.reserved, self.usage.allocated)
        return max(*(int(curve.max(initial=-1)) for curve in curves), *self.start.values(), *self.end.values())

    def usage_at(self, at: int) -> dict[str, int]:
        """Returns reserved, allocated, active and requested bytes after event ``at`` (-1: before the first); -1: unknown."""
        if at < 0:
            return dict(self.start)
        return {name: int(self.usage[name][at]) for name in ("reserved", "allocated", "active", "requested")}

    def live(self, at: int, *, pending: bool = False) -> Array:
        """Returns the rows of tensors live after event ``at`` (-1: before the first); with ``pending`` also those freed but waiting."""
        gone = self.tensors.free_completed_at if pending else self.tensors.free_requested_at
        return np.flatnonzero((self.tensors.alloc_at <= at) & (gone > at))

    def peak(self, curve: str) -> int:
        """Returns the first event at which ``curve`` ("reserved", "allocated", …) is highest; -1: it was before the trace."""
        values = self.usage[curve]
        if not len(values):
            return -1
        best = int(np.argmax(values))
        return best if values[best] > self.start[curve] else -1

    def topology(self, at: int) -> Topology:
        """Returns segments and blocks as they stood after event ``at`` (-1: before the first)."""
        return topology_at(self.regions, self.tensors, at)


TENSORS_OF_ALL = {"device": schema.Column("int32", "", "index of the device"), **schema.TENSORS}


@dataclass(frozen=True)
class Trace:
    """A whole trace.

    Attributes:
        path: Where it was read from.
        format: Name of the source, a key of ``memdiag.registry.SOURCES``.
        backend: "cuda", "npu", "xpu", "cpu" …; None: unknown.
        torch_version: As the file says; a guess ends in "?"; None: unknown.
        phantom: True if recorded on a simulated device.
        settings: Allocator settings as the file has them ("PYTORCH_CUDA_ALLOC_CONF": raw text, …); empty: unknown.
        strings: Names used by annotations and by ``event_strings``.
        annotations: Named spans (``schema.ANNOTATIONS``).
        bases: How phases, steps and categories were found: "marks", "annotations", "stacks", "periodicity" or "none".
        notes: What limits the diagnosis.
        complete_from_start: The trace begins on an empty allocator; None: unknown.
        layout: Sizes that the allocator used.
        recorded: What a recorder marked, as it stands in the file; None: it was not recorded by memdiag.
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
    recorded: Recorded | None = None

    @property
    def num_events(self) -> int:
        """Entries of all devices."""
        return sum(device.num_events for device in self.devices)

    @property
    def num_tensors(self) -> int:
        """Lifecycles of all devices."""
        return sum(len(device.tensors) for device in self.devices)

    @cached_property
    def tensors(self) -> Table:
        """Every lifecycle, all devices, with a column ``device``."""
        parts = [
            {"device": np.full(len(d.tensors), d.device, np.int32), **{c: d.tensors[c] for c in d.tensors}}
            for d in self.devices
        ]
        if not parts:
            return Table.empty(TENSORS_OF_ALL)
        return Table(TENSORS_OF_ALL, {c: np.concatenate([part[c] for part in parts]) for c in TENSORS_OF_ALL})
