"""Who held the memory of a card over time: rows whose parts sum to the total of the card."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardMoment:
    """The memory of a card at one moment.

    The total is the sum of reserved, own outside, other processes, unknown and free bytes; parts that are None count
    as part of ``unknown_bytes``.

    Attributes:
        at_event: The first event after this moment, or the number of events if no event follows; None if unknown.
        at_us: Time of this moment in microseconds since 1970.
        when: "start" (first use of the device), "phase", "step", "mark", "timer", "oom", "end", "save" or "saved"
            (before and after a checkpoint is saved).
        step: Number of completed training steps.
        total_bytes: Memory of the card.
        reserved_bytes: Memory that the allocator of this process has reserved, without parts that are not on the card.
        unmapped_bytes: Reserved according to the allocator, but not on the card: another allocator has unmapped at
            least this much, as engines do to sleep. Not a part of the total.
        own_outside_bytes: Other memory of this process: the context, buffers of libraries and of communication. None if
            the driver does not separate it from other processes.
        other_processes_bytes: Memory of other processes, or None if the driver does not separate processes.
        unknown_bytes: Memory in use, but not by a known process. If the driver gives no figures for each process,
            everything in use that is not reserved.
        free_bytes: Free memory of the card.
    """

    at_event: int | None
    at_us: int
    when: str
    step: int
    total_bytes: int
    reserved_bytes: int
    own_outside_bytes: int | None
    other_processes_bytes: int | None
    unknown_bytes: int
    free_bytes: int
    unmapped_bytes: int = 0
