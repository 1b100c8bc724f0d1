"""Names for moments, pools and tensors, as findings print them."""

from __future__ import annotations

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.context import DeviceView
from memdiag.text import Phrase, joined, phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import LIFETIMES, PHASES


def moment_name(device: DeviceTrace, at: int) -> Phrase:
    """Returns ``event 1,204 (step 3, backward)``; ``before the trace`` for -1."""
    if at < 0:
        return phrase("places.before") if device.num_events else phrase("places.snapshot")
    details: list[str] = []
    if device.events.step[at] >= 0:
        details.append(phrase("places.step", step=str(device.events.step[at])))
    if device.events.phase[at] > 0:
        details.append(vocabulary.name("phase", PHASES[device.events.phase[at]]))
    return (
        phrase("places.event.details", at=int(at), details=joined(details, ", "))
        if details
        else phrase("places.event", at=int(at))
    )


def when(view: DeviceView) -> Phrase:
    """Returns the moment of a view as words.

    Examples are ``at the peak``, ``when memory ran out`` and ``at event 1,204 (step 3, backward)``.
    """
    if view.kind != "event":
        return vocabulary.when(view.kind)
    return phrase("places.when.event", event=moment_name(view.device, view.at))


def when_at(view: DeviceView, at: int) -> Phrase:
    """Returns event ``at`` as words: as the moment of the report if the same tensors are live, else by its number."""
    is_same = at == view.at or np.array_equal(view.device.live(at), view.device.live(view.at))
    return when(view) if is_same else phrase("places.when.event", event=moment_name(view.device, at))


def group_name(device: DeviceTrace, group: int) -> Phrase:
    """Returns ``default pool, large blocks, stream 0`` for a row of Groups."""
    if group < 0:
        return phrase("places.pool.unknown")
    row = {name: device.groups[name][group] for name in schema.GROUPS}
    private = bool(row["pool_major"] or row["pool_minor"])
    pool = (
        phrase("places.pool.private", major=str(row["pool_major"]), minor=str(row["pool_minor"]))
        if private
        else phrase("places.pool.default")
    )
    stream = (
        phrase("places.stream.default") if row["stream"] == 0 else phrase("places.stream", stream=f"{row['stream']:#x}")
    )
    return phrase("places.group.small" if row["small"] else "places.group.large", pool=pool, stream=stream)


def lifetime_name(lifetime: int) -> str:
    """Returns ``surviving to the next step`` and similar, or "" if unknown."""
    name = LIFETIMES[lifetime]
    return "" if name == "unknown" else vocabulary.name("lifetime", name)


def age(device: DeviceTrace, alloc_at: int, at: int) -> str:
    """Returns the age of a tensor at ``at``: ``for 12,034 events (3 steps)``, or "" without a trace.

    Args:
        device: The device.
        alloc_at: Event of its allocation.
        at: Event at which the age is computed.
    """
    if at < 0:
        return ""
    if alloc_at < 0:
        return phrase("places.age.before")
    events = int(at - alloc_at)
    then, now = int(device.events.step[alloc_at]), int(device.events.step[at])
    if then < 0 or now <= then:
        return phrase("places.age", events=events)
    return phrase("places.age.steps", events=events, steps=now - then)
