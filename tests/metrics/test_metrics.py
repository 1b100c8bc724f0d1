"""Gauges of a process: they sum to the card, and the libraries that read them understand them."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.metrics.gauges import GAUGES, gauges
from memdiag.metrics.scalars import log, scalars
from memdiag.results.watch import WatchedDevice, WatchReading
from tests.watch.conftest import WAIT, start  # noqa: F401 - a fixture

DEVICE = WatchedDevice("cuda:0", "H100", 1000, 900, 300, 500, 450, 400, 390, 600, 550, 1, 0, 60, 350)
READING = WatchReading(1.0, 7, 3, "2.13.0", "gdb", 5, 60.0, False, False, (DEVICE,), 123, 0, None, None, (), 0.001)
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"


@pytest.fixture
def served():
    """Returns a function that serves readings; the URL is that of the scrapes."""
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus-client: memdiag[metrics]")
    assert prometheus
    from memdiag.metrics.prometheus import Server

    servers = []

    def begin(read):
        servers.append(Server(":0", read))
        return servers[-1].url

    yield begin
    for server in servers:
        server.close()


def scrape(url):
    """Returns the samples of a scrape: name, labels and value, as prometheus-client's own parser reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(url, timeout=WAIT) as answer:  # noqa: S310 - a server of the test
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def test_the_parts_sum_to_the_card_and_to_the_reserved_memory():
    parts = {gauge.labels["part"]: gauge.value for gauge in gauges(READING) if gauge.name == "memdiag_memory_bytes"}
    assert sum(parts.values()) == DEVICE.total_bytes
    assert parts["tensors"] + parts["pending"] + parts["cached"] == DEVICE.reserved_bytes
    assert {gauge.name for gauge in gauges(READING)} <= set(GAUGES)


def test_an_unknown_value_is_missing():
    unknown = dataclasses.replace(DEVICE, free_bytes=None, distance_bytes=None)
    names = {gauge.name for gauge in gauges(dataclasses.replace(READING, devices=(unknown,), steps=None))}
    assert not names & {"memdiag_memory_bytes", "memdiag_distance_bytes", "memdiag_steps", "memdiag_host_limit_bytes"}
    assert "memdiag_reserved_bytes" in names


def test_a_scrape_parses_and_sums(served):
    samples = scrape(served(lambda: READING))
    parts = [value for name, _, value in samples if name == "memdiag_memory_bytes"]
    assert sum(parts) == 1000
    assert ("memdiag_up", {"pid": "7", "rank": "3"}, 1.0) in samples
    assert ("memdiag_reserved_bytes", {"pid": "7", "rank": "3", "device": "cuda:0"}, 500.0) in samples


def test_a_scrape_of_a_process_that_has_ended_says_so(served):
    readings = iter([READING, None])
    url = served(lambda: next(readings))
    scrape(url)
    assert scrape(url) == [("memdiag_up", {"pid": "7", "rank": "3"}, 0.0)]


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("address", ["9464", "localhost:", ":70000", "a:b"])
def test_an_address_that_is_none_is_refused(address):
    from memdiag.metrics.prometheus import Server

    with pytest.raises(MemdiagError, match="HOST:PORT"):
        Server(address, lambda: READING)


@pytest.mark.usefixtures("served")
def test_a_port_in_use_is_named():
    from memdiag.metrics.prometheus import Server

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MemdiagError, match="in use"):
            Server(f":{taken.getsockname()[1]}", lambda: READING)


def test_without_the_package_the_hint_names_the_extra(monkeypatch):
    from memdiag.metrics.prometheus import Server

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MemdiagError) as refused:
        Server(":0", lambda: READING)
    assert refused.value.hint == "pip install 'memdiag[metrics]'"


def test_a_watched_training_is_served_until_it_ends(served, start):  # noqa: ARG001, F811
    program = start("cuda", armed=True)
    command = [sys.executable, "-m", "memdiag", "watch", str(program.pid), "--serve", ":0", "--interval", "0.2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watcher:
        url = re.search(r"http://\S+", watcher.stderr.readline())[0]
        samples = scrape(url)
        parts = [value for name, _, value in samples if name == "memdiag_memory_bytes"]
        assert sum(parts) == next(value for name, _, value in samples if name == "memdiag_total_bytes")
        program.stop()
        _, said = watcher.communicate(timeout=WAIT)
    assert watcher.returncode == 0
    assert said == f"process {program.pid} has ended\n"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)  # noqa: S310 - a server of the test


def test_opentelemetry_exports_the_same_values():
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: memdiag[opentelemetry]")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from memdiag.metrics.opentelemetry import register

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    register(provider.get_meter("test"), lambda: READING)
    exported = json.loads(reader.get_metrics_data().to_json())
    provider.shutdown()
    metrics = exported["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    values = {metric["name"]: [point["value"] for point in metric["data"]["data_points"]] for metric in metrics}
    assert sum(values["memdiag.memory_bytes"]) == 1000
    assert values["memdiag.reserved_bytes"] == [500]


class _SummaryWriter:
    def __init__(self):
        self.written = {}

    def add_scalar(self, name, value, step):
        self.written[name] = (value, step)


class _Mlflow:
    def log_metrics(self, values, step):
        self.written = {name: (value, step) for name, value in values.items()}


class _Run:
    def log(self, values, step):
        self.written = {name: (value, step) for name, value in values.items()}


@pytest.mark.parametrize("logger", [_SummaryWriter(), _Mlflow(), _Run()])
def test_a_logger_gets_each_value_with_the_step(logger):
    assert log(logger, 10, READING) == scalars(READING)
    assert logger.written["memdiag/cuda.0/reserved_bytes"] == (500, 10)
    assert logger.written["memdiag/cuda.0/memory_bytes/tensors"] == (400, 10)


def test_an_unknown_logger_is_refused():
    with pytest.raises(MemdiagError, match="cannot write metrics to a object"):
        log(object(), 1, READING)


def test_the_dashboard_asks_for_gauges_that_exist():
    text = DASHBOARD.read_text(encoding="utf-8")
    board = json.loads(text)
    asked = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    names = set(re.findall(r"memdiag_[a-z_]*[a-z](?![a-z_(])", asked))
    names |= {f"memdiag_{name}" for name in ("reserved_bytes", "allocated_bytes", "retries", "ooms")}
    assert names <= set(GAUGES)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
