"""The report of ``memdiag plan``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rival:
    """Another placement of the same buffers.

    Attributes:
        name: Short, stable: ``first_fit_by_size``, ``online_first_fit``, ``online_best_fit``.
        height_bytes: Bytes it needs, or None if it was not tried because it would take too long.
    """

    name: str
    height_bytes: int | None


@dataclass(frozen=True)
class PlanReport:
    """A placement plan and the placements it is compared with. All sizes are in bytes.

    Attributes:
        source: The file.
        format: Input format, a key of ``memdiag.registry.SOURCES``.
        device: Device whose tensors were placed, or None for a list of lifetimes.
        ends: Ends of a lifetime interval that are included: "half-open" (the lower), "closed" (both) or "open" (none).
        num_buffers: Number of rows; ``num_empty`` of them have no bytes or an empty lifetime.
        before, after: Tensors that are live before the trace begins, and after its end.
        align, seed, seconds_allowed: Options of the command.
        capacity_bytes: Total device memory given on the command line, or None to search for the lowest plan.
        outside_bytes: Memory outside the allocator when it was recorded, or None if unknown (none is assumed).
        load_bytes, requested_bytes: Peak of live bytes, with sizes rounded up to ``align`` and as requested.
        height_bytes, bound_bytes: Height of the plan, and the proved lower bound.
        method, ended, seconds: As in ``Plan``.
        rivals: Other placements of the same buffers.
        recorded_bytes: Recorded reserved peak, or None if unknown.
        output: The file with the offsets, or None if it was not written.
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
        """Height divided by load; 1.0 if there are no live buffers."""
        return self.height_bytes / self.load_bytes if self.load_bytes else 1.0

    @property
    def fits(self) -> bool | None:
        """True if the tensors fit into the allocator's room, or None if no capacity was given."""
        return None if self.room_bytes is None else self.height_bytes <= self.room_bytes

    @property
    def room_bytes(self) -> int | None:
        """Memory that the allocator can reserve on the device, or None if no capacity was given."""
        return None if self.capacity_bytes is None else max(self.capacity_bytes - (self.outside_bytes or 0), 0)
