"""What there is to say of one moment of a device, and where the moments are that one jumps to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import failed_allocations, peak_event
from memdiag.trace.table import Array
from memdiag.views import timeline


@dataclass(frozen=True)
class Places:
    """Moments of a device that one jumps to. Each is worked out when it is asked for."""

    device: DeviceTrace

    @cached_property
    def peak(self) -> int:
        """The peak of a report, see ``memdiag.trace.moments``; -1: it was before the trace."""
        return peak_event(self.device)

    @cached_property
    def allocated_peak(self) -> int:
        """The first event with most allocated."""
        return self.device.peak("allocated")

    @cached_property
    def ooms(self) -> Array:
        """Events that ran out of memory."""
        return failed_allocations(self.device)

    @cached_property
    def retries(self) -> Array:
        """Requests that were served after cached segments had been given back."""
        return np.sort(timeline.retries(self.device))

    @cached_property
    def steps(self) -> Array:
        """First events of training steps."""
        return timeline.step_starts(self.device)["event"]

    @cached_property
    def has_phases(self) -> bool:
        """Whether any event is known to belong to a phase."""
        return bool((self.device.events.phase > 0).any())


def beyond(events: Array, at: int, *, back: bool) -> int | None:
    """Returns the next of ``events`` (ascending) after ``at``, or the one before it; None: there is none."""
    place = int(np.searchsorted(events, at, side="left" if back else "right")) - back
    return int(events[place]) if 0 <= place < len(events) else None


@dataclass(frozen=True)
class Moment:
    """One moment.

    Attributes:
        at: The event after which this holds; -1: before the first.
        usage: Bytes: reserved, allocated, active, requested, and what of the free ones is cache, stranded, foreign; -1:
            unknown.
        action: What happened, a word of ``schema.ACTIONS``; "" before the first event.
        size: Bytes that it was about; -1: none.
        name, place: What the tensor is called, and the line of code; "" where not known.
        step: Training step; -1: none, or unknown.
        phase: A word of ``schema.PHASES``.
        since_us: Microseconds since the first event with a time; None: unknown.
    """

    at: int
    usage: Mapping[str, int]
    action: str
    size: int
    name: str
    place: str
    step: int
    phase: str
    since_us: int | None


def moment(trace: Trace, device: DeviceTrace, at: int) -> Moment:
    """Returns what there is to say of the moment after event ``at``."""
    usage = device.usage_at(at) if device.num_events else device.end
    if at < 0:
        return Moment(
            at, {**usage, "cache": -1, "stranded": -1, "foreign": -1}, "", -1, "", "", -1, schema.PHASES[0], None
        )
    events = device.events
    action = schema.ACTIONS[events.action[at]]
    tensor = int(events.tensor[at])
    name = int(device.tensors.name[tensor]) if tensor >= 0 else -1
    return Moment(
        at,
        {**usage, **{part: int(device.usage[part][at]) for part in ("cache", "stranded", "foreign")}},
        action,
        int(events.size[at]) if action not in {"snapshot", "workspace_snapshot", "unknown"} else -1,
        trace.strings[name] if name >= 0 else "",
        trace.stacks.label(int(events.stack[at])),
        int(events.step[at]),
        schema.PHASES[events.phase[at]],
        since_us(device, at),
    )


def there(device: DeviceTrace, at: int) -> Array:
    """Returns the tensors (rows) that sit in memory after event ``at``, those waiting for a stream included: together, the active bytes."""
    rows = device.live(at, pending=True)
    return rows[device.tensors.group[rows] >= 0] if device.has_addresses else rows


def totals(device: DeviceTrace, at: int, by: Literal["category", "lifetime"]) -> list[tuple[str, int]]:
    """Returns the bytes of the blocks in memory after event ``at`` by ``category`` or ``lifetime``, the largest first."""
    rows = there(device, at)
    names = {"category": schema.CATEGORIES, "lifetime": schema.LIFETIMES}[by]
    sums = np.bincount(device.tensors[by][rows], device.tensors.block_bytes[rows], len(names))  # exact below 2**53
    found = [(name, int(size)) for name, size in zip(names, sums.tolist(), strict=True) if size]
    return sorted(found, key=lambda item: -item[1])


def since_us(device: DeviceTrace, at: int) -> int | None:
    """Returns the microseconds from the first event to event ``at``; None where the times are not known."""
    time = device.events.time_us
    if not 0 <= at < len(time) or time[0] < 0 or time[at] < 0:
        return None
    return int(time[at] - time[0])
