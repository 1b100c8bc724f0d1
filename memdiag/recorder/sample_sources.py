"""The sources of samples that a recording has; see ``sampling`` for the members of a source."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .backends.counters import CounterSamples
from .card_samples import CardSamples
from .host_samples import HostSamples
from .long_waits import LongWaits
from .process_samples import ProcessSamples


def sources_for(backend: Any, steps: Callable[[], int]) -> list[Any]:
    """Returns the sources for a backend, in the order of their sections in a sample.

    Args:
        backend: The backend that is recorded.
        steps: Returns the number of completed training steps.
    """
    waits = [LongWaits(steps)] if os.environ.get("MEMDIAG_PHANTOM") else []
    host = HostSamples(sys.modules.get("torch"))
    if getattr(backend, "is_counted", False):
        card = [CardSamples(backend)] if backend.knows_card() else []
        return [CounterSamples(backend), *card, host, *waits]
    if not asks_driver(backend):
        return [host, *waits]
    return [CardSamples(backend), ProcessSamples(backend.name, backend.driver_number), host, *waits]


def asks_driver(backend: Any) -> bool:
    """Returns whether a backend has a driver that reports free memory."""
    return hasattr(backend, "driver_memory")
