"""The sources of samples that a recording has; see ``sampling`` for the members of a source."""

from __future__ import annotations

import sys
from typing import Any

from .card_samples import CardSamples
from .host_samples import HostSamples
from .process_samples import ProcessSamples


def sources_for(backend: Any) -> list[Any]:
    """Returns the sources for a backend, in the order of their sections in a sample."""
    host = HostSamples(sys.modules.get("torch"))
    if not asks_driver(backend):
        return [host]
    return [CardSamples(backend), ProcessSamples(backend.name, backend.driver_number), host]


def asks_driver(backend: Any) -> bool:
    """Returns whether a backend has a driver that reports free memory."""
    return hasattr(backend, "driver_memory")
