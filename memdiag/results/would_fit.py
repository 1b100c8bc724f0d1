"""The answer whether a tensor of a given size would fit at the moment of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FitAnswer = Literal["cache", "segment", "retry", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class WouldFit:
    """The answer whether the allocator can serve a request at the moment of a report.

    Sizes are in bytes, or None if unknown.

    Attributes:
        device: Index of the device.
        requested_bytes: Size of the request.
        rounded_request_bytes: Size of the request, rounded according to the recorded settings.
        at_event: Event after which the request is made, or None if the file has only one state.
        answer: How the allocator would serve the request: from cache, with a new segment, with a new segment after a
            retry (which releases cached memory), not at all, or unknown.
        explanation: The answer in words.
        details: The facts that the answer rests on, in words.
        pool: Pool and stream that serve the request.
        free_bytes: Free bytes in the pool and stream that serve the request.
        num_free: Number of free blocks in that pool and stream.
        largest_free_bytes: Largest free block in that pool and stream.
        largest_free_shortfall_bytes: Bytes that the largest free block lacks.
        closest_range_bytes: Length of the address range with the fewest live bytes that could hold the request; 0: no
            segment is as long.
        blocking_bytes: Live bytes in the closest range (``closest_range_bytes``).
        num_blocking_tensors: Live tensors in the closest range.
        blocking_tensors: Names of the largest live tensors in the closest range, at most three.
        new_segment_bytes: Bytes that the driver must provide.
        driver_free_bytes: Free memory of the device (an upper bound if memory outside the allocator was not recorded).
        released_bytes: Bytes that a retry releases.
        shortfall_bytes: Bytes that the device lacks even after a retry.
    """

    device: int
    requested_bytes: int
    rounded_request_bytes: int
    at_event: int | None
    answer: FitAnswer
    explanation: str
    pool: str = ""
    free_bytes: int | None = None
    num_free: int | None = None
    largest_free_bytes: int | None = None
    largest_free_shortfall_bytes: int | None = None
    closest_range_bytes: int | None = None
    blocking_bytes: int | None = None
    num_blocking_tensors: int | None = None
    blocking_tensors: tuple[str, ...] = ()
    new_segment_bytes: int | None = None
    driver_free_bytes: int | None = None
    released_bytes: int | None = None
    shortfall_bytes: int | None = None
    details: tuple[str, ...] = ()
