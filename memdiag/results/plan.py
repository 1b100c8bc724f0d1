"""The report of ``memdiag plan``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rival:
    """Another way of placing the same buffers.

    Attributes:
        name: Short, stable: ``first_fit_by_size``, ``online_first_fit``, ``online_best_fit``.
        height_bytes: Bytes that it needs; None: not tried, it would take too long.
    """

    name: str
    height_bytes: int | None


@dataclass(frozen=True)
class PlanReport:
    """One plan, and what it is compared with. Bytes throughout.

    Attributes:
        source: The file.
        format: Its form, a key of ``memdiag.registry.SOURCES``.
        device: Whose tensors were placed; None: a list of lifetimes.
        ends: Which ends of a lifetime are alive: "half-open" (the lower), "closed" (both) or "open" (none).
        num_buffers: Rows; ``num_empty`` of them have no bytes or no life.
        before, after: Tensors that were there before the trace, and at its end.
        align, seed, seconds_allowed: As asked for.
        capacity_bytes: All memory of the card, as asked for; None: the lowest plan was wanted.
        outside_bytes: What lay outside the allocator when it was recorded; None: unknown, and none is assumed.
        load_bytes, requested_bytes: The most bytes live at one moment, sizes rounded up to ``align`` and as they are.
        height_bytes, bound_bytes: Of the plan; what was proved to be needed.
        method, ended, seconds: As in ``Plan``.
        rivals: On the same buffers.
        recorded_bytes: What the recorded allocator held at most; None: unknown.
        output: The file with the offsets; None: not written.
    """

    source: str
    format: str
    device: int | None
    ends: str
    num_buffers: int
    num_empty: int
    before: int
    after: int
    align: int
    seed: int
    seconds_allowed: float
    capacity_bytes: int | None
    load_bytes: int
    requested_bytes: int
    height_bytes: int
    bound_bytes: int
    method: str
    ended: str
    seconds: float
    rivals: tuple[Rival, ...]
    recorded_bytes: int | None
    output: str | None
    outside_bytes: int | None = None
    schema_version: int = 1

    @property
    def ratio(self) -> float:
        """Height over load; 1.0 where nothing lives."""
        return self.height_bytes / self.load_bytes if self.load_bytes else 1.0

    @property
    def fits(self) -> bool | None:
        """Whether the tensors fit the room on the card; None: no card was given."""
        return None if self.room_bytes is None else self.height_bytes <= self.room_bytes

    @property
    def room_bytes(self) -> int | None:
        """What an allocator could hold of the card; None: no card was given."""
        return None if self.capacity_bytes is None else max(self.capacity_bytes - (self.outside_bytes or 0), 0)
