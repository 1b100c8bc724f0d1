"""A recording of counters is read as curves without tensors; peaks between samples become rows of their own."""

from __future__ import annotations

import pickle

import pytest

import memdiag
from memdiag.analyzers.report import build_report
from memdiag.render.analyze import full

MIB = 1 << 20


def recording(tmp_path, *rows, backend="mps"):
    samples = [
        {"t_us": 10 + at, "when": "timer", "step": at, "counters": [{"device": 0, **row}]}
        for at, row in enumerate(rows)
    ]
    own = {"format": 1, "backend": backend, "counters": True, "samples": samples}
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]], "memdiag": own}))
    return memdiag.load(path)


def row(reserved, allocated, reserved_peak=None, allocated_peak=None):
    sizes = {"reserved": reserved, "allocated": allocated}
    peaks = {"reserved_peak": reserved_peak, "allocated_peak": allocated_peak}
    return {f"{name}_bytes": size * MIB for name, size in {**sizes, **peaks}.items() if size is not None}


def curve(trace, name):
    return [size // MIB if size >= 0 else size for size in trace.devices[0].usage[name].tolist()]


def test_samples_become_the_curves(tmp_path):
    trace = recording(tmp_path, row(2, 1), row(8, 5), row(6, 3))
    assert curve(trace, "reserved") == [2, 8, 6]
    assert curve(trace, "allocated") == [1, 5, 3]
    assert set(curve(trace, "active")) == {-1}
    assert trace.devices[0].events.time_us.tolist() == [10, 11, 12]


def test_a_new_peak_between_two_samples_is_a_row_before_the_second(tmp_path):
    trace = recording(tmp_path, row(2, 1, 2, 1), row(6, 3, 9, 7), row(6, 3, 9, 7), row(4, 2, 9, 8))
    assert curve(trace, "reserved") == [2, 9, 6, 6, 9, 4]
    assert curve(trace, "allocated") == [1, 7, 3, 3, 8, 2]
    assert trace.devices[0].events.time_us.tolist() == [10, 11, 11, 12, 13, 13]


def test_the_report_says_what_cannot_be_known(tmp_path):
    report = build_report(recording(tmp_path, row(2, 1), row(8, 5), row(6, 3)))
    text = full.render(report)
    assert "Peak 5.00 MiB allocated in 8.00 MiB reserved" in text
    assert "MD908" in text
    assert "keeps no" in text
    assert "_record_memory_history" not in text  # this accelerator has no such function
    assert report.devices[0].fragmentation.lost_bytes is None


def test_a_counter_that_is_missing_is_unknown(tmp_path):
    trace = recording(tmp_path, {"allocated_bytes": 3 * MIB})
    assert curve(trace, "reserved") == [-1]
    assert curve(trace, "allocated") == [3]


@pytest.mark.parametrize(
    "strange", [{}, {"reserved_bytes": "x"}, {"reserved_bytes": -5, "reserved_peak_bytes": 1 << 70}]
)
def test_strange_counters_are_unknown(tmp_path, strange):
    assert curve(recording(tmp_path, strange), "reserved") == [-1]


def test_a_history_has_priority(tmp_path):
    own = {"format": 1, "backend": "cuda", "counters": True}
    own["samples"] = [{"t_us": 1, "when": "end", "step": 0, "counters": [{"device": 0, "reserved_bytes": MIB}]}]
    entry = {"action": "segment_alloc", "addr": 1 << 40, "size": 2 * MIB, "stream": 0, "time_us": 1, "frames": []}
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[entry]], "memdiag": own}))
    assert curve(memdiag.load(path), "reserved") == [2]
