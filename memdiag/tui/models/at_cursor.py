"""Facts about one moment of a device, and the moments that a user can jump to."""

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
    """Moments of a device that a user can jump to. Each is computed on demand."""

    device: DeviceTrace

    @cached_property
    def peak(self) -> int:
        """The peak of a report, see ``memdiag.trace.moments``; -1 if it was before the trace."""
        return peak_event(self.device)

    @cached_property
    def ooms(self) -> Array:
        """Events that ran out of memory."""
        return failed_allocations(self.device)

    @cached_property
    def retries(self) -> Array:
        """Requests that were served after cached segments had been released."""
        return np.sort(timeline.retries(self.device))

    @cached_property
    def steps(self) -> Array:
        """First events of training steps."""
        return timeline.step_starts(self.device)["event"]

    @cached_property
    def has_phases(self) -> bool:
        """True if the phase of any event is known."""
        return bool((self.device.events.phase > 0).any())


def beyond(events: Array, at: int, *, back: bool) -> int | None:
    """Returns the next of ``events`` (ascending) after ``at``, or the previous one, or None."""
    place = int(np.searchsorted(events, at, side="left" if back else "right")) - back
    return int(events[place]) if 0 <= place < len(events) else None


@dataclass(frozen=True)
class Moment:
    """One moment.

    Attributes:
        at: The moment is after this event, or before the first event if -1.
        usage: Bytes: reserved, allocated, active, requested, and of the free ones cache, stranded, foreign; -1 if
            unknown.
        action: The event's action, a word of ``schema.ACTIONS``; "" before the first event.
        size: Its bytes, or -1 for none.
        name, place: Name and line of code of the tensor, or "" if unknown.
        step: Training step, or -1 if unknown.
        phase: A word of ``schema.PHASES``.
        since_us: Microseconds since the first event with a time, or None if unknown.
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
    """Returns the facts about the moment after event ``at``."""
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
    """Returns the tensors (rows) in memory after event ``at``, including those waiting for a stream.

    Their total is the active bytes.
    """
    rows = device.live(at, pending=True)
    return rows[device.tensors.group[rows] >= 0] if device.has_addresses else rows


def totals(device: DeviceTrace, at: int, by: Literal["category", "lifetime"]) -> list[tuple[str, int]]:
    """Returns the bytes of the blocks in memory after event ``at`` by ``category`` or ``lifetime``, largest first."""
    rows = there(device, at)
    names = {"category": schema.CATEGORIES, "lifetime": schema.LIFETIMES}[by]
    sums = np.bincount(device.tensors[by][rows], device.tensors.block_bytes[rows], len(names))  # exact below 2**53
    found = [(name, int(size)) for name, size in zip(names, sums.tolist(), strict=True) if size]
    return sorted(found, key=lambda item: -item[1])


def since_us(device: DeviceTrace, at: int) -> int | None:
    """Returns the microseconds from the first event to event ``at``, or None if unknown."""
    time = device.events.time_us
    if not 0 <= at < len(time) or time[0] < 0 or time[at] < 0:
        return None
    return int(time[at] - time[0])
