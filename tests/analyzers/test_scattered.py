"""The analyzer reports long-lived tensors in separate blocks if a replay with one common buffer saves memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.allocator.workload import ALLOC, FREE_COMPLETED, FREE_REQUESTED, Workload
from memdiag.analyzers import scattered
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.habits_judged import merged
from memdiag.trace import schema
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.trace.table import Table
from tests.analyzers.heaps import MIB, Heap


def kept(trace, category="optimizer_state", lifetime="optimizer_state"):
    """Returns the trace with the same category and lifetime for every tensor."""
    (device,) = trace.devices
    tensors = {name: device.tensors[name].copy() for name in device.tensors}
    tensors["category"][:] = CATEGORIES.index(category)
    tensors["lifetime"][:] = LIFETIMES.index(lifetime)
    return replace(trace, devices=(replace(device, tensors=Table(schema.TENSORS, tensors)),))


def states(heap, count=64, size=11, segment=12, where="exp7"):
    """Returns a trace with tensors that are each alone in a slightly larger segment."""
    for i in range(count):
        heap.segment(i * 100, segment * MIB, where=where)
        heap.alloc(i * 100, size * MIB, where=where)
    heap.segment(90_000, 20 * MIB, where="last9")  # reserves the peak
    heap.alloc(90_000, 20 * MIB, where="last9")
    return heap.trace()


def test_rounding_of_many_blocks_is_saved_by_one(heap):
    (found,) = [finding for finding in build_report(kept(states(heap))).findings if finding.code == "MD122"]
    facts = {evidence.what: evidence.value for evidence in found.evidence}
    assert facts["bytes added by rounding these sizes up to blocks"] == 64 * MIB
    assert facts["reserved peak if one buffer is used instead (replayed)"] == 64 * 11 * MIB + 20 * MIB
    assert (found.saving.expected_bytes, found.saving.basis) == (64 * MIB, "simulated")
    assert found.evidence[0].where == "train.py:7 exp7: optimizer state"
    assert found.severity == "warning"


def test_what_a_replay_does_not_bear_out_is_withdrawn(heap, monkeypatch):
    trace = kept(states(heap))
    monkeypatch.setattr("memdiag.analyzers.support.habits_judged.FLOOR", 1 << 40)
    assert list(scattered.analyze(trace, Context()))
    assert "MD122" not in {finding.code for finding in build_report(trace).findings}


def test_without_a_replay_there_is_no_saving(heap):
    (found,) = [
        finding for finding in build_report(kept(states(heap)), replay=False).findings if finding.code == "MD122"
    ]
    assert found.saving is None
    assert found.severity == "info"


@pytest.mark.parametrize(
    ("changed", "marked"),
    [
        ({"count": 10}, {}),
        ({"size": 12}, {}),  # tensors fill their segments, so no memory is lost
        ({}, {"lifetime": "forward_to_backward"}),
        ({}, {"category": "activation"}),
        ({"where": ""}, {}),
    ],
)
def test_few_tensors_or_short_lives_are_silent(heap, changed, marked):
    assert list(scattered.analyze(kept(states(heap, **changed), **marked), Context())) == []


def workload(calls):
    """Returns a workload of calls, each given as (op, tensor, size)."""
    op, tensor, size = (np.array(column) for column in zip(*calls, strict=True))
    zeros = np.zeros(len(op), np.int64)
    count = int(tensor.max()) + 1
    return Workload(op, tensor, size, zeros, zeros, np.arange(len(op)), len(op), count, np.zeros(1, np.uint64))


def test_one_buffer_is_made_with_the_first_and_freed_with_the_last():
    calls = [(ALLOC, 0, 100), (ALLOC, 1, 50), (ALLOC, 2, 100), (FREE_REQUESTED, 2, 0), (FREE_COMPLETED, 2, 0)]
    calls += [(FREE_REQUESTED, 0, 0), (FREE_COMPLETED, 0, 0), (FREE_REQUESTED, 1, 0), (FREE_COMPLETED, 1, 0)]
    found = merged(workload(calls), np.array([0, 2]))
    told = list(zip(found.op.tolist(), found.tensor.tolist(), found.size.tolist(), found.row.tolist(), strict=True))
    assert told == [
        (ALLOC, 0, 224, 0),
        (ALLOC, 1, 50, 1),
        (FREE_REQUESTED, 0, 0, 5),
        (FREE_COMPLETED, 0, 0, 6),
        (FREE_REQUESTED, 1, 0, 7),
        (FREE_COMPLETED, 1, 0, 8),
    ]


def test_a_buffer_stays_while_one_of_them_does():
    calls = [(ALLOC, 0, 100), (ALLOC, 1, 100), (FREE_REQUESTED, 0, 0), (FREE_COMPLETED, 0, 0)]
    assert merged(workload(calls), np.array([0, 1])).op.tolist() == [ALLOC]


def test_what_was_there_before_the_trace_cannot_be_merged():
    assert merged(workload([(ALLOC, 0, 100), (FREE_COMPLETED, 1, 0)]), np.array([0, 1])) is None


def _states():
    heap = Heap()
    for i in range(64):
        heap.segment(i * 100, 12 * MIB, where="adamw.py:140 _init_group")
        heap.alloc(i * 100, 11 * MIB, where="adamw.py:140 _init_group")
    heap.segment(90_000, 20 * MIB, where="model.py:31 forward")
    heap.alloc(90_000, 20 * MIB, where="model.py:31 forward")
    return build_report(kept(heap.trace())).findings


PAGE_EXAMPLES = {
    "MD122": _states,
}
