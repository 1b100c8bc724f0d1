"""Serves gauges to Prometheus, through prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.results.watch import WatchReading
from memdiag.text import phrase

from .gauges import GAUGES, Gauge, gauges

_HERE = "127.0.0.1"


class Server:
    """An HTTP server that answers scrapes.

    Args:
        address: HOST:PORT, or :PORT for this machine only.
        read: Returns the current reading, or None if the process has ended.

    Attributes:
        port: The port, also if 0 was requested.

    Raises:
        MemdiagError: prometheus-client is missing, or the address cannot be used.
    """

    def __init__(self, address: str, read: Callable[[], WatchReading | None]) -> None:
        host, port = _split(address)
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MemdiagError(phrase("watch.no-prometheus"), phrase("watch.no-prometheus.hint")) from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Collector(read))
        try:
            self._server, self._thread = start_http_server(port, host, registry=registry)
        except OSError as error:
            why = str(error.strerror or error)
            raise MemdiagError(
                phrase("watch.address", address=address, error=why), phrase("watch.address.hint")
            ) from None
        self.port = int(self._server.server_port)
        self.url = f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Ends the server after the scrapes that it is answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Collector:
    """Produces the metrics of a scrape.

    Args:
        read: Returns the current reading, or None if the process has ended.
    """

    def __init__(self, read: Callable[[], WatchReading | None]) -> None:
        self._read = read
        self._labels: dict[str, str] = {}

    def collect(self) -> Iterator[Any]:
        """Yields the families of metrics; of a process that has ended, only ``memdiag_up`` with 0."""
        from prometheus_client.core import GaugeMetricFamily

        reading = self._read()
        found = [Gauge("memdiag_up", self._labels, 0)] if reading is None else list(gauges(reading))
        self._labels = found[0].labels
        for name, meaning in GAUGES.items():
            values = [gauge for gauge in found if gauge.name == name]
            if values:
                family = GaugeMetricFamily(name, meaning, labels=list(values[0].labels))
                for gauge in values:
                    family.add_metric(list(gauge.labels.values()), gauge.value)
                yield family


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise MemdiagError(
            phrase("watch.address", address=address, error=phrase("watch.address.form")), phrase("watch.address.hint")
        )
    return host or _HERE, int(port)
