"""The moment of a report: its definition, its names on the command line, and the event for each name.

The default is the failed allocation (the last one, if several failed). Without one, it is the peak: of the events
within 2 % of the reserved peak, the first with the most allocated bytes. The first event at the reserved peak itself is
not suitable. It is only the new segment, before its tensor exists, and a small segment may raise reserved bytes to
their peak long after most tensors are freed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace import schema

if TYPE_CHECKING:
    from memdiag.trace.model import DeviceTrace
    from memdiag.trace.table import Array

MOMENTS: tuple[str, ...] = ("oom", "peak", "allocated", "reserved", "end")
DEFAULT = "default"  # "oom" for a device with a failed allocation, else "peak"
PEAK_BAND_PERCENT = 2  # below the reserved peak; events in this band count as the reserved peak
NEAR_CAPACITY = 0.9  # fraction of the device: the peak itself is a problem
_EVENT = re.compile(r"-1|[0-9]{1,15}")


class ChosenMoment(NamedTuple):
    """A moment of one device.

    Attributes:
        event: The moment is after this event, or before the first event if -1.
        kind: One of MOMENTS, "event" (any other event), or "snapshot" (the file has no history, only a state).
    """

    event: int
    kind: str


def parse_moment(text: str) -> str | int:
    """Parses ``--at``: one of MOMENTS, DEFAULT, or an event number.

    Raises:
        MemdiagError: ``text`` is none of these.
    """
    word = text.strip().lower()
    if word in {*MOMENTS, DEFAULT}:
        return word
    digits = word.replace(",", "").replace("_", "")
    if not _EVENT.fullmatch(digits):
        hint = f"use {', '.join(MOMENTS)}, or the number of an event, for example --at 1204"
        raise MemdiagError(phrase("errors.at", text=str(text)), hint)
    return int(digits)


def has_history(device: DeviceTrace) -> bool:
    """Returns whether the file has a history of events.

    A recording of the state only keeps a ring of one entry, which does not count.
    """
    return device.num_events > 1


def has_requests(device: DeviceTrace) -> bool:
    """Returns whether the program requested memory during the recording."""
    return bool(np.isin(device.events.action, (schema.ALLOC, schema.OOM)).any())


def is_nearly_full(device: DeviceTrace) -> bool:
    """Returns whether reserved memory almost reached the capacity of the device."""
    reserved = int(np.max(device.usage.reserved, initial=device.start["reserved"]))
    return bool(device.capacity_bytes) and reserved >= NEAR_CAPACITY * (device.capacity_bytes or 0)


def failed_allocations(device: DeviceTrace) -> Array:
    """Returns the events at which a request ran out of memory, ascending."""
    found: Array = (device.events.action == schema.OOM).nonzero()[0]
    return found


def require_moment(devices: Iterable[DeviceTrace], at: str | int) -> None:
    """Checks that at least one of ``devices`` has the moment.

    Raises:
        MemdiagError: No device has the event, or a failed allocation.
    """
    devices = list(devices)
    if isinstance(at, int) and not any(-1 <= at < device.num_events for device in devices):
        most = max((device.num_events for device in devices), default=0)
        hint = (
            f"events run from 0 to {most - 1}; -1 is before the first" if most else "it has none: only the last state"
        )
        raise MemdiagError(phrase("errors.no-event", at=str(at)), hint)
    if at == "oom" and not any(len(failed_allocations(device)) for device in devices):
        raise MemdiagError(phrase("errors.no-oom"), phrase("errors.no-oom.hint"))


def choose_moment(device: DeviceTrace, at: str | int = DEFAULT) -> ChosenMoment:
    """Returns the moment of a device that ``at`` names.

    Args:
        device: The device.
        at: One of MOMENTS, DEFAULT, or an event. If the device has no failed allocation, "oom" means its peak; if it
            has fewer events, its last event is used.
    """
    last = device.num_events - 1
    failed = failed_allocations(device)
    if isinstance(at, int):
        event = min(at, last)
        known = (("oom", set(failed.tolist())), ("peak", {peak_event(device)}))
        return ChosenMoment(event, next((kind for kind, events in known if event in events), "event"))
    if at in {"oom", DEFAULT} and len(failed):
        return ChosenMoment(int(failed[-1]), "oom")
    if not has_history(device):
        return ChosenMoment(last, "snapshot")
    events = {
        "allocated": lambda: device.peak("allocated"),
        "reserved": lambda: reserved_peak(device),
        "end": lambda: last,
    }
    return ChosenMoment(events[at](), at) if at in events else ChosenMoment(peak_event(device), "peak")


def peak_event(device: DeviceTrace) -> int:
    """Returns the event with the most allocated bytes near the reserved peak (see the module docstring).

    If only one of the two curves is known, the peak of that one. -1 means before the first event.
    """
    reserved, allocated, start = device.usage.reserved, device.usage.allocated, device.start
    most = max(int(reserved.max(initial=-1)), start["reserved"])
    if most < 0:
        return device.peak("allocated")
    if max(int(allocated.max(initial=-1)), start["allocated"]) < 0:
        return reserved_peak(device)
    least = -(-most * (100 - PEAK_BAND_PERCENT) // 100)
    near = (reserved >= least).nonzero()[0]
    if not len(near):
        return -1
    best = int(near[allocated[near].argmax()])
    return -1 if start["reserved"] >= least and start["allocated"] > allocated[best] else best


def reserved_peak(device: DeviceTrace) -> int:
    """Returns the first event at which reserved bytes are highest, or -1 if before all events.

    If a request raised them, it is the event at which the request has its block.
    """
    at = device.peak("reserved")
    request = int(device.usage.reference[at]) if at >= 0 else -1
    if request < 0:
        return at
    references = device.references
    served = int(references.at_event[request])
    under_way = int(references.opened_at[request]) <= at < served and not references.failed[request]
    return served if under_way and device.usage.reserved[served] == device.usage.reserved[at] else at
