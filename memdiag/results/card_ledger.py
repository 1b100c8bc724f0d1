"""Who had the memory of a card over time: rows whose parts sum to the total of the card."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardMoment:
    """The memory of a card at one moment.

    The total is the sum of reserved, own outside, other processes, unknown and free bytes; parts that are None count
    as part of ``unknown_bytes``.

    Attributes:
        at_event: The first event after the moment (the number of events: after the last), or None if unknown.
        at_us: Its time in microseconds since 1970.
        when: "start" (first use of the device), "phase", "step", "mark", "timer", "oom", "end", "save" or "saved"
            (before and after a checkpoint is saved).
        step: Number of completed training steps.
        total_bytes: Memory of the card.
        reserved_bytes: Reserved by the allocator of this process, as far as it is on the card.
        unmapped_bytes: Reserved according to the allocator, but not on the card: another allocator has unmapped at
            least this much, as engines do to sleep. Not a part of the total.
        own_outside_bytes: Other memory of this process: the context, buffers of libraries and of communication. None
            if it cannot be told apart from other processes.
        other_processes_bytes: Memory of other processes, or None if it cannot be told apart.
        unknown_bytes: In use, but not by a known process: without per-process figures of the driver, everything in use
            that is not reserved.
        free_bytes: Free for every process.
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
