"""Registers gauges with OpenTelemetry: the meter of the program's own SDK decides when and where they are exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.results.watch import WatchReading
from memdiag.text import phrase

from .gauges import GAUGES, gauges


def register(meter: Any, read: Callable[[], WatchReading | None]) -> None:
    """Registers a gauge for each name, such as ``memdiag.reserved_bytes``.

    Args:
        meter: A meter (``opentelemetry.metrics.get_meter("memdiag")``).
        read: Returns the current reading, or None if the process has ended.

    Raises:
        MemdiagError: OpenTelemetry is not installed.
    """
    try:
        import opentelemetry.metrics  # noqa: F401 - for a clear error now instead of one at every export
    except ImportError:
        raise MemdiagError(phrase("watch.no-opentelemetry"), phrase("watch.no-opentelemetry.hint")) from None
    for name, meaning in GAUGES.items():
        unit = "By" if name.endswith("_bytes") else "1"
        meter.create_observable_gauge(
            name.replace("_", ".", 1), callbacks=[partial(_observed, name, read)], unit=unit, description=meaning
        )


def _observed(name: str, read: Callable[[], WatchReading | None], _options: Any) -> Iterator[Any]:
    from opentelemetry.metrics import Observation

    reading = read()
    for gauge in gauges(reading) if reading is not None else ():
        if gauge.name == name:
            yield Observation(gauge.value, gauge.labels)
