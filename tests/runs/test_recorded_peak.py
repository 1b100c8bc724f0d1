"""The summary of a recording states the reserved peak beside the moment that it describes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdiag.analyzers.report import build_report
from memdiag.render.record import terminal
from memdiag.results.recording import RunMemory, RunSummary
from tests.analyzers.heaps import MIB, Heap


@pytest.mark.parametrize(("more", "expected"), [(0, False), (512, False), (4 * MIB, True)])
def test_a_reserved_peak_at_another_moment_is_stated(more, expected):
    heap = Heap()
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 30 * MIB)
    report = build_report(heap.trace())
    (device,) = report.devices
    peak = replace(device.peak, reserved_bytes=device.moment.reserved_bytes + more)
    report = replace(report, devices=(replace(device, peak=peak),))
    nothing = RunSummary("run", "", False, None, ({},), None, 0, 1.0, 0.0, 0.0, False, False, (), (), ())
    lines = "\n".join(terminal.memory(replace(nothing, memory=RunMemory(report))))
    assert ("at another moment, " in lines) is expected
