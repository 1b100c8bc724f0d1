"""The device memory of a recording: its size, the allocator's room on it, and the assumptions of a simulation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memdiag.allocator.calibration.from_trace import PLAIN_EVENTS
from memdiag.results.report import CardReport
from memdiag.settings.conf import parse_conf
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.allocator.scenario import Scenario
    from memdiag.allocator.subject import Subject
    from memdiag.trace.model import DeviceTrace

_GC = "garbage_collection_threshold"


def card_of(subject: Subject, confs: Iterable[str] = ()) -> CardReport:
    """Returns the device memory of a recording, with the assumptions; ``confs`` are the simulated settings."""
    limits, card = subject.limits, subject.device.card
    capacity = limits.capacity_bytes if limits.is_known else None
    outside = limits.outside_bytes
    rooms = [] if limits.capacity_bytes is None else [limits.capacity_bytes - (outside or 0)]
    if limits.limit_bytes is not None:
        rooms.append(limits.limit_bytes)
    card_memory = card_memory_of(subject.device)
    return CardReport(
        capacity,
        min(rooms, default=None),
        outside,
        limits.outside_basis,
        card_memory.outside_at_start_bytes,
        card_memory.outside_at_peak_bytes,
        card_memory.outside_at_end_bytes,
        card.fraction,
        tuple(_notes(subject, confs)),
    )


def room_on(subject: Subject, scenario: Scenario) -> int | None:
    """Returns the allocator's room on the device of a scenario, in bytes, or None for no limit."""
    if scenario.capacity_bytes is None:
        return None
    room = scenario.capacity_bytes - subject.most_outside
    return room if scenario.fraction is None else min(room, int(scenario.fraction * scenario.capacity_bytes))


def card_memory_of(device: DeviceTrace) -> CardReport:
    """Returns the device memory as described in the file, without inferences."""
    card, capacity = device.card, device.capacity_bytes
    outside = card.outside_bytes
    by = {sample.when: sample.outside_bytes for sample in card.samples}
    room = None if capacity is None or outside is None else capacity - outside
    return CardReport(
        capacity,
        room,
        outside,
        "recorded" if outside is not None else "",
        by.get("start"),
        None if card.peak is None else card.peak.outside_bytes,
        by.get("end"),
        card.fraction,
        outside_error_bytes=card.outside_error_bytes,
    )


def _notes(subject: Subject, confs: Iterable[str]) -> list[str]:
    """Returns the assumptions about the device memory, as sentences without a full stop."""
    if subject.trace.format == PLAIN_EVENTS:
        return []
    limits = subject.limits
    notes: list[str] = []
    if limits.outside_bytes is not None:
        basis = phrase(f"cards.basis.{limits.outside_basis}")
        notes.append(phrase("cards.outside", bytes=format_bytes(limits.outside_bytes), basis=basis))
        if error := subject.device.card.outside_error_bytes:
            notes.append(phrase("cards.outside.error", bytes=format_bytes(error)))
    else:
        notes.append(phrase("cards.outside.unknown"))
    if (
        subject.device.card.fraction is None
        and limits.limit_bytes is None
        and any(_GC in parse_conf(conf) for conf in confs)
    ):
        notes.append(phrase("cards.fraction", key=_GC))
    return notes
