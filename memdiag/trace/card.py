"""The card of a device: free memory at a few moments of a recorded run, and the memory outside the allocator.

The context of the runtime, buffers of NCCL or HCCL, and other processes lie outside: total - free - reserved.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Figures of driver and allocator at one moment.

    Attributes:
        when: "start" (the device was first seen in use), "step", "oom" or "end".
        step: Training steps done by then.
        total_bytes, free_bytes: Of the device, as its driver said.
        reserved_bytes: Held by the allocator.
    """

    when: str
    step: int
    total_bytes: int
    free_bytes: int
    reserved_bytes: int

    @property
    def outside_bytes(self) -> int:
        """Bytes in use that the allocator does not hold."""
        return max(self.total_bytes - self.free_bytes - self.reserved_bytes, 0)


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about the device of a recording, beside its capacity.

    Attributes:
        samples: In order; empty: none were taken.
        fraction: The share of the device that the process may use; None: unknown.
    """

    samples: tuple[MemorySample, ...] = ()
    fraction: float | None = None

    @property
    def outside_bytes(self) -> int | None:
        """The most bytes outside the allocator at any of these moments; None: unknown."""
        return max((sample.outside_bytes for sample in self.samples), default=None)

    @property
    def peak(self) -> MemorySample | None:
        """The sample at which the allocator held most."""
        return max(self.samples, key=lambda sample: sample.reserved_bytes, default=None)
