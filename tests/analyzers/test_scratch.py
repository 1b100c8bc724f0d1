"""The counts of cuDNN's scratch memory on a simulated device are read, bounded and reported in a finding."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest

from memdiag.analyzers import scratch
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.sources.phantom_scratch import CONSTANT_BYTES, OPERANDS, outside_error_in, scratch_in
from memdiag.units import MIB

GOLDEN = Path(__file__).parents[1] / "goldens" / "cuda-2.13.0-recorded" / "snapshot.pickle"
PLANNED = {"calls": 474, "unknown_calls": 0, "largest_bytes": 10 * MIB, "largest_unknown_operand_bytes": 0}
UNKNOWN = {"calls": 474, "unknown_calls": 474, "largest_bytes": 0, "largest_unknown_operand_bytes": 9 * MIB}


def own(planner=92000, given=0, extra=0, **tallies):
    counts = {"planner": planner, "given_bytes": given, "extra_bytes": extra, **tallies}
    return {"phantom_device": {"device": "cuda:a100-80g", "scratch": counts}}


def found(folder=None, counts=None):
    """Returns the findings on a recording of a simulated device that counted this."""
    content = pickle.loads(GOLDEN.read_bytes())
    content["memdiag"] |= {"phantom": True, **(counts or own(convolution=PLANNED))}
    path = Path(folder or tempfile.gettempdir()) / "scratch.pickle"
    path.write_bytes(pickle.dumps(content, 4))
    try:
        return list(scratch.analyze(load(path), Context()))
    finally:
        path.unlink()


def test_a_card_may_add_a_constant_to_planned_convolutions():
    read = scratch_in(own(convolution=PLANNED))
    assert (read.planner, read.num_calls, read.num_unknown_calls) == ("9.20.0", 474, 0)
    assert read.more_bytes == CONSTANT_BYTES


def test_the_workspaces_of_all_engines_are_read():
    read = scratch_in(own(convolution=PLANNED, workspaces=[[5, 0, 7], [], "x", [-1, 2]], plans=6, lists=2))
    assert (read.workspaces, read.is_searching) == (((5, 0, 7), (), (2,)), True)
    assert not scratch_in(own(convolution=PLANNED, workspaces=[[5]], plans=2, lists=2)).is_searching


def test_planned_attention_is_known():
    assert scratch_in(own(attention=PLANNED)).more_bytes == 0


def test_what_nobody_planned_is_bounded_by_its_operands():
    read = scratch_in(own(planner=0, convolution=UNKNOWN))
    assert read.planner == ""
    assert read.more_bytes == CONSTANT_BYTES + OPERANDS * 9 * MIB
    assert scratch_in(own(planner=0, recurrent=UNKNOWN)).more_bytes == OPERANDS * 9 * MIB


def test_what_the_user_added_is_no_longer_missing():
    assert scratch_in(own(convolution=PLANNED, extra=CONSTANT_BYTES)).more_bytes == 0
    assert scratch_in(own(planner=0, convolution=UNKNOWN, given=CONSTANT_BYTES)).more_bytes == OPERANDS * 9 * MIB


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {}, {"calls": True}, {**PLANNED, "calls": -1}, {**PLANNED, "calls": 0}]
)
def test_counts_of_a_stranger_are_ignored(value):
    assert scratch_in(own(convolution=value)) is None
    assert scratch_in({"phantom_device": {"scratch": value}}) is None
    assert scratch_in({"phantom_device": value}) is None


def test_the_finding_has_both_bounds(tmp_path):
    (one,) = found(tmp_path)
    values = {evidence.what: evidence.value for evidence in one.evidence}
    low = values["lower bound of the peak: the recorded allocated peak"]
    high = values["upper bound of the peak, from measurements; cuDNN documents no limit"]
    assert high - low == CONSTANT_BYTES
    assert one.fixes[0].change == "export MEMDIAG_PHANTOM_CUDNN_EXTRA=128M"
    (other,) = found(tmp_path, own(planner=0, convolution=UNKNOWN))
    assert other.fixes[0].change == "export MEMDIAG_PHANTOM_CUDNN_WORKSPACE=164M"
    assert "cuDNN 9.8 or later" in other.fixes[1].title


def test_nothing_unknown_is_no_finding(tmp_path):
    assert found(tmp_path, own(attention=PLANNED)) == []
    assert found(tmp_path, {"phantom_device": {"device": "cuda:a100-80g"}}) == []


def test_memory_outside_the_allocator_has_an_error():
    given = own(communicators={"count": 1, "bytes": 688 * MIB})
    given["phantom_device"]["context_error_bytes"] = 128 * MIB
    assert outside_error_in(given) == (128 + 688) * MIB
    assert outside_error_in({}) == outside_error_in({"phantom_device": 3}) == 0
    assert outside_error_in({"phantom_device": {"context_error_bytes": "x", "scratch": {"communicators": 4}}}) == 0


PAGE_EXAMPLES = {
    "MD955": found,
}
