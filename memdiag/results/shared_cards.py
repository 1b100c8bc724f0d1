"""Cards that several processes of a run share: who held what, when they took turns, and when one ran out of memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process on a shared card.

    Attributes:
        rank: Rank of the process in the run.
        pid: Process id, or None if unknown.
        name: Name of the program, or "" if unknown.
        peak_reserved_bytes: Most memory that the allocator of this process had on the card, over all samples.
    """

    rank: int
    pid: int | None
    name: str
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True)
class SharedMoment:
    """The memory of a shared card at one sample of one process.

    The total of the card is the sum of ``reserved_bytes``, ``outside_bytes`` and ``free_bytes``.

    Attributes:
        at_us: Time in microseconds since 1970.
        rank: The process that took the sample.
        when: "start", "phase", "step", "mark", "timer", "oom" or "end".
        reserved_bytes: Reserved by the allocator of each process, in the order of the card's processes.
        outside_bytes: In use, but by none of these allocators: contexts, libraries, communication, other processes.
        free_bytes: Free for every process.
    """

    at_us: int
    rank: int
    when: str
    reserved_bytes: tuple[int, ...]
    outside_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class HandOff:
    """A moment at which another process had become the one that uses the card.

    Attributes:
        at_us: Time in microseconds since 1970.
        from_rank: The process that used the card before.
        to_rank: The process that uses the card from then on.
        kept_bytes: Memory that the allocator of the earlier process still held.
    """

    at_us: int
    from_rank: int
    to_rank: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class CardFailure:
    """A request that failed on a shared card.

    Attributes:
        rank: The process that ran out of memory.
        requested_bytes: Size of the failed request, or None if unknown.
        moment: The memory of the card at that moment.
    """

    rank: int
    requested_bytes: int | None
    moment: SharedMoment


@dataclass(frozen=True, slots=True)
class SharedCard:
    """A card that several processes of a run used.

    Attributes:
        card: Identity of the card.
        total_bytes: Total memory of the card.
        processes: The recorded processes that used the card, by rank.
        moments: Memory of the card over time.
        hand_offs: When the processes took turns.
        failures: Requests that failed.
        num_skipped: Number of samples that are left out because the processes changed their memory while it was read.
    """

    card: str
    total_bytes: int
    processes: tuple[CardProcess, ...]
    moments: tuple[SharedMoment, ...]
    hand_offs: tuple[HandOff, ...]
    failures: tuple[CardFailure, ...]
    num_skipped: int = 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another recorded process on the card of a process that ran out of memory.

    Attributes:
        rank: Rank of the process in the run.
        reserved_bytes: Reserved by its allocator at the failure.
        trace: Its trace.
    """

    rank: int
    reserved_bytes: int
    trace: str
