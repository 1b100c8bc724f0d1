"""Memory of a process as metrics: for Prometheus, OpenTelemetry, TensorBoard, Weights & Biases and MLflow.

In a training, without a watcher:

>>> import memdiag.metrics
>>> server = memdiag.metrics.serve(":9464")  # doctest: +SKIP
>>> memdiag.metrics.log(writer, step=10)  # doctest: +SKIP

``memdiag watch PID --serve :9464`` exports the same gauges of a process that runs already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .here import reading
from .scalars import log

if TYPE_CHECKING:
    from .prometheus import Server

__all__ = ["log", "observe", "reading", "serve"]


def serve(address: str = ":9464") -> Server:
    """Serves this process's gauges to Prometheus, read at every scrape.

    Args:
        address: HOST:PORT or :PORT, which serves on this machine only.

    Raises:
        MemdiagError: prometheus-client is missing, or the address cannot be used.
    """
    from .prometheus import Server

    return Server(address, reading)


def observe(meter: Any) -> None:
    """Registers this process's gauges with a meter of OpenTelemetry's SDK, which reads them at every export."""
    from .opentelemetry import register

    register(meter, reading)
