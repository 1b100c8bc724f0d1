"""The report of ``memdiag plan``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rival:
    """Another placement method, for the same buffers.

    Attributes:
        name: Stable name: ``first_fit_by_size``, ``online_first_fit`` or ``online_best_fit``.
        height_bytes: Bytes that it needs; null: not tried, as it would take too long.
    """

    name: str
    height_bytes: int | None


@dataclass(frozen=True)
class PlanReport:
    """A placement plan, and other methods for comparison.

    Attributes:
        path: The file that was read.
        format: Format of the file: "torch-snapshot", "minimalloc", …
        device: Device whose tensors were placed; null: the file is a list of lifetimes.
        interval_ends: Ends that a lifetime includes: "half-open" (the lower end), "closed" (both) or "open" (none).
        num_buffers: Number of buffers.
        num_empty: Number of buffers without bytes or without a lifetime; their offset is 0.
        before: Number of tensors allocated before the trace begins.
        after: Number of tensors live at the end of the trace.
        alignment_bytes: Alignment of offsets.
        seed: Random seed.
        time_limit_seconds: Time limit of the search.
        capacity_bytes: All memory of the card; null: no card was given, so memdiag searched for the lowest plan.
        outside_bytes: Memory outside the allocator when the trace was recorded; null: unknown and assumed to be zero.
        live_peak_bytes: Most bytes live at one moment, with sizes rounded up to the alignment.
        requested_peak_bytes: Most bytes live at one moment, without rounding.
        height_bytes: Bytes that the plan needs.
        lower_bound_bytes: Proven lower bound on the bytes of any plan.
        method: How the plan was found.
        stop_reason: Why the search stopped: "load" (the plan needs no more than the live peak), "capacity" (it fits the
            card), "proved" (no plan is lower), "effort" (every planned attempt was made) or "time".
        seconds: Duration of the search.
        rivals: Other placement methods for the same buffers.
        recorded_peak_reserved_bytes: Most bytes that the recorded allocator reserved; null: unknown.
        output: The file with the offsets; null: not written.
    """

    path: str
    format: str
    device: int | None
    interval_ends: str
    num_buffers: int
    num_empty: int
    before: int
    after: int
    alignment_bytes: int
    seed: int
    time_limit_seconds: float
    capacity_bytes: int | None
    live_peak_bytes: int
    requested_peak_bytes: int
    height_bytes: int
    lower_bound_bytes: int
    method: str
    stop_reason: str
    seconds: float
    rivals: tuple[Rival, ...]
    recorded_peak_reserved_bytes: int | None
    output: str | None
    outside_bytes: int | None = None

    @property
    def ratio(self) -> float:
        """Height of the plan divided by the live peak; 1.0 if the peak is 0."""
        return self.height_bytes / self.live_peak_bytes if self.live_peak_bytes else 1.0

    @property
    def fits(self) -> bool | None:
        """True if the plan fits the card; None: no card was given."""
        return None if self.usable_bytes is None else self.height_bytes <= self.usable_bytes

    @property
    def usable_bytes(self) -> int | None:
        """Bytes of the card that the allocator can use; None: no card was given."""
        return None if self.capacity_bytes is None else max(self.capacity_bytes - (self.outside_bytes or 0), 0)
