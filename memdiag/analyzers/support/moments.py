"""One moment of a device and its free memory: the split, the reference request, and the fit of that request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.fit import Fit, would_fit
from memdiag.analyzers.support.places import moment_name
from memdiag.results.report import Fragmentation
from memdiag.sizes.cuda import LARGE_SEGMENT, get_allocation_size
from memdiag.trace.free_split import split_at
from memdiag.trace.model import DeviceTrace
from memdiag.trace.topology import Topology

NEAR = 0.95  # fraction of the reserved peak


@dataclass(frozen=True)
class DeviceMoment:
    """One device at one moment.

    Attributes:
        view: The device.
        settings: Allocator settings of the trace.
        at: The moment is after this event, or before the first event if -1.
        reference: Row of References that defines the split, or -1.
        failed: Whether that request ran out of memory at this event.
    """

    view: DeviceView
    settings: AllocatorSettings
    at: int
    reference: int
    failed: bool

    @property
    def device(self) -> DeviceTrace:
        """The device's trace."""
        return self.view.device

    @cached_property
    def usage(self) -> dict[str, int]:
        """Reserved, allocated, active and requested bytes; -1 if unknown."""
        return self.device.usage_at(self.at)

    @cached_property
    def split(self) -> dict[str, int]:
        """Cache, stranded and foreign bytes; -1 if unknown."""
        return {
            name: int(self.device.usage[name][self.at]) if self.at >= 0 else -1
            for name in ("cache", "stranded", "foreign")
        }

    @property
    def is_split_known(self) -> bool:
        """Returns True if the split is known, which needs addresses and a reference request."""
        return self.reference >= 0 and min(self.split.values()) >= 0 and self.usage["reserved"] >= 0

    @property
    def lost_bytes(self) -> int:
        """Free bytes that the reference request cannot use, the loss figure of a report; needs ``is_split_known``."""
        return self.split["stranded"] + self.split["foreign"]

    @property
    def request_bytes(self) -> int:
        """The rounded reference request."""
        return int(self.device.references.size[self.reference])

    @property
    def group(self) -> int:
        """Pool and stream of the reference request (a row of Groups), or -1."""
        return int(self.device.references.group[self.reference]) if self.reference >= 0 else -1

    @property
    def name(self) -> str:
        """The moment, in words."""
        return moment_name(self.device, self.at)

    @property
    def site(self) -> str:
        """Call site of the reference request, or "" if unknown."""
        return self.view.label(int(self.device.events.stack[self.device.references.at_event[self.reference]]))

    @property
    def device_free_bytes(self) -> int | None:
        """Free bytes of the device when memory ran out; None if no request failed here, or if not recorded."""
        free = int(self.device.events.addr[self.at]) if self.failed else -1
        return free if free >= 0 else None

    @property
    def segment_bytes(self) -> int:
        """Bytes of a new segment for the reference request."""
        return segment_bytes(self.request_bytes, self.settings)

    @property
    def under_way(self) -> bool:
        """Returns True if the moment is within the entries of the reference request, and no request failed."""
        if self.reference < 0 or self.failed:
            return False
        references = self.device.references
        return int(references.opened_at[self.reference]) <= self.at <= int(references.at_event[self.reference])

    @property
    def before(self) -> int:
        """Last event before the reference request reserved memory; the moment itself if that is not under way."""
        return int(self.device.references.opened_at[self.reference]) - 1 if self.under_way else self.at

    @property
    def after(self) -> int:
        """Event at which the reference request has its block; the moment itself if that is not under way."""
        return int(self.device.references.at_event[self.reference]) if self.under_way else self.at

    @cached_property
    def topology(self) -> Topology:
        """Segments and blocks at the moment, without the segment that the reference request is reserving."""
        return self.device.topology(self.before)

    @cached_property
    def fit(self) -> Fit:
        """The fit of the reference request into the memory before it reserved more."""
        return would_fit(self.topology, self.group, self.request_bytes)


def segment_bytes(request: int, settings: AllocatorSettings) -> int:
    """Returns the size of a new segment for a rounded request (CUDACachingAllocator.cpp: get_allocation_size)."""
    return get_allocation_size(request, settings.page_bytes(small=False))


def look(view: DeviceView, settings: AllocatorSettings) -> DeviceMoment:
    """Returns the facts on a device's free memory at the moment of a view."""
    device, references, at = view.device, view.device.references, view.at
    reference = int(device.usage.reference[at]) if at >= 0 else -1
    out_of_memory = reference >= 0 and bool(references.failed[reference]) and int(references.at_event[reference]) == at
    return DeviceMoment(view, settings, at, reference, out_of_memory)


def at_end(view: DeviceView, settings: AllocatorSettings) -> DeviceMoment:
    """Returns the end of the trace on one device."""
    at = view.device.num_events - 1
    return DeviceMoment(view, settings, at, int(view.device.usage.reference[at]) if at >= 0 else -1, False)


def most_stranded(view: DeviceView, settings: AllocatorSettings) -> DeviceMoment | None:
    """Returns the moment near the reserved peak with the most stranded memory when a request reserved more, or None.

    At the peak itself the reference request is often a small one, for which hardly any free block is too small.
    """
    references, usage = view.device.references, view.device.usage
    opened = references.opened_at[references.opened_at < references.at_event]
    near_peak = opened[usage.reserved[opened] >= NEAR * usage.reserved.max(initial=0)]
    if not len(near_peak):
        return None
    return look(DeviceView(view.trace, view.device, int(near_peak[np.argmax(usage.stranded[near_peak])])), settings)


def reference_kind(device: DeviceTrace, at: int) -> str | None:
    """Returns the kind of the reference request at ``at``: "this", "next", "last" or "largest request"; or None."""
    row = int(device.usage.reference[max(at, 0)]) if device.num_events else -1
    if row < 0:
        return None
    references = device.references
    if references.opened_at[row] == references.at_event[row] and not references.failed[row]:
        return "largest request"  # it reserved nothing, and no request of the trace did
    if at < references.opened_at[row]:
        return "next request"
    return "this request" if at <= references.at_event[row] else "last request"


def reference_at(device: DeviceTrace, at: int) -> tuple[str | None, int | None, int]:
    """Returns the reference request after event ``at``: its kind, its rounded bytes, its row of Groups (-1: none).

    Without any request in the trace (a snapshot without a history), it is the largest live tensor.
    """
    row = int(device.usage.reference[max(at, 0)]) if device.num_events else -1
    if row >= 0:
        return reference_kind(device, at), int(device.references.size[row]), int(device.references.group[row])
    live = device.live(at, pending=True) if device.has_addresses else ()
    if not len(live):
        return None, None, -1
    largest = int(live[np.argmax(device.tensors.block_bytes[live])])
    return "largest live", int(device.tensors.block_bytes[largest]), int(device.tensors.group[largest])


def fragmentation_at(device: DeviceTrace, at: int, large_page: int = LARGE_SEGMENT) -> Fragmentation:
    """Returns the split of reserved - requested after event ``at``; unknown parts are None.

    ``large_page`` is the unit of large expandable segments, in bytes.
    """
    usage = device.usage_at(at)
    kind, size, group = reference_at(device, at)
    split = split_at(device, at, size, group, large_page) if size is not None and device.has_addresses else None
    return Fragmentation(
        at_event=at if device.num_events else None,
        reference_request_bytes=size,
        reference_kind=kind,
        rounding_bytes=_difference(usage["allocated"], usage["requested"]),
        pending_bytes=_difference(usage["active"], usage["allocated"]),
        stranded_bytes=split.stranded if split else None,
        foreign_bytes=split.foreign if split else None,
        cache_bytes=split.cache if split else None,
        largest_free_bytes=split.largest_free if split else None,
    )


def _difference(more: int, less: int) -> int | None:
    return more - less if more >= 0 and less >= 0 else None
