"""Memory of a device outside the allocator, and free memory at some moments of a recorded run.

Memory outside the allocator is total - free - reserved: the context of the runtime, buffers of NCCL or HCCL, and other
processes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Values from the driver and the allocator at one moment.

    Attributes:
        when: One of ``schema.OCCASIONS``.
        step: Number of completed training steps.
        total_bytes, free_bytes: Memory of the device according to its driver.
        reserved_bytes: Memory that the allocator has reserved.
    """

    when: str
    step: int
    total_bytes: int
    free_bytes: int
    reserved_bytes: int

    @property
    def outside_bytes(self) -> int:
        """Bytes in use outside the allocator."""
        return max(self.total_bytes - self.free_bytes - self.reserved_bytes, 0)


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about the device of a recording, except its capacity.

    Attributes:
        samples: Samples in order of time; may be empty.
        fraction: Per-process memory fraction, or None if unknown.
        outside_error_bytes: By how much memory outside the allocator may differ on a card; 0 if not simulated.
    """

    samples: tuple[MemorySample, ...] = ()
    fraction: float | None = None
    outside_error_bytes: int = 0

    @property
    def outside_bytes(self) -> int | None:
        """Peak of bytes outside the allocator over all samples, or None if unknown."""
        return max((sample.outside_bytes for sample in self.samples), default=None)

    @property
    def peak(self) -> MemorySample | None:
        """The sample with the most reserved bytes."""
        return max(self.samples, key=lambda sample: sample.reserved_bytes, default=None)
