"""The gauges of a reading. ``memdiag_memory_bytes`` has a value for each part of a card; they sum to its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memdiag.results.watch import WatchedDevice, WatchReading

# Name of a gauge, and its meaning. All are in bytes, unless the name says otherwise.
GAUGES = {
    "memdiag_up": "1 while memdiag can read the process, otherwise 0",
    "memdiag_memory_bytes": "Memory of the card by part: tensors, pending, cached, outside, free; they sum to its size",
    "memdiag_total_bytes": "Total memory of the card",
    "memdiag_limit_bytes": "Memory that the process may reserve on the card",
    "memdiag_reserved_bytes": "Memory reserved by the allocator: tensors, pending and cached",
    "memdiag_allocated_bytes": "Memory in blocks of live tensors",
    "memdiag_peak_reserved_bytes": "Peak of the reserved memory so far",
    "memdiag_peak_allocated_bytes": "Peak of the allocated memory so far",
    "memdiag_distance_bytes": "Upper bound of the memory that the process can still allocate",
    "memdiag_growth_bytes_per_minute": "Trend of the allocated memory; 0 if there is no significant trend",
    "memdiag_retries": "Requests for which the allocator released cached memory first",
    "memdiag_ooms": "Requests that failed",
    "memdiag_steps": "Training steps since memdiag attached",
    "memdiag_host_bytes": "Resident memory of the process",
    "memdiag_host_limit_bytes": "Memory limit of the container",
}
_OF_DEVICE = {
    "memdiag_total_bytes": "total_bytes",
    "memdiag_limit_bytes": "limit_bytes",
    "memdiag_reserved_bytes": "reserved_bytes",
    "memdiag_allocated_bytes": "allocated_bytes",
    "memdiag_peak_reserved_bytes": "peak_reserved_bytes",
    "memdiag_peak_allocated_bytes": "peak_allocated_bytes",
    "memdiag_distance_bytes": "distance_bytes",
    "memdiag_growth_bytes_per_minute": "growth_bytes_per_minute",
    "memdiag_retries": "num_retries",
    "memdiag_ooms": "num_ooms",
}


@dataclass(frozen=True)
class Gauge:
    """One value.

    Attributes:
        name: A name of ``GAUGES``.
        labels: Names and values of its labels.
        value: The value.
    """

    name: str
    labels: dict[str, str]
    value: float


def gauges(reading: WatchReading) -> Iterator[Gauge]:
    """Yields the known values of a reading; unknown ones are missing, never 0."""
    labels = {"pid": str(reading.pid)} | ({} if reading.rank is None else {"rank": str(reading.rank)})
    yield Gauge("memdiag_up", labels, 1)
    for name, value in (
        ("memdiag_steps", reading.steps),
        ("memdiag_host_bytes", reading.host_bytes),
        ("memdiag_host_limit_bytes", reading.host_limit_bytes),
    ):
        if value is not None:
            yield Gauge(name, labels, value)
    for device in reading.devices:
        yield from _of_device(device, {**labels, "device": device.device})


def _of_device(device: WatchedDevice, labels: dict[str, str]) -> Iterator[Gauge]:
    for part, size in (device.parts or {}).items():
        yield Gauge("memdiag_memory_bytes", {**labels, "part": part}, size)
    for name, field in _OF_DEVICE.items():
        value = getattr(device, field)
        if value is not None:
            yield Gauge(name, labels, value)
