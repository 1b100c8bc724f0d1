"""The analyzer reports shards that are gathered into a list and then concatenated, but not gathers into one tensor."""

from __future__ import annotations

import pytest

from memdiag.analyzers import communication
from memdiag.analyzers.support.context import Context
from tests.analyzers.heaps import MIB, Heap

GATHER = ["fill8", "all_gather", "step3"]
JOIN = ["cat9", "all_gather", "step3"]


def findings(trace):
    return {finding.code: finding for finding in communication.analyze(trace, Context())}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def gather(heap, ranks=4, size=20, joined=80, made=GATHER, then=JOIN, between=0, gone=False):
    """Allocates a list of shards, and one tensor for all of them."""
    heap.segment(0, 2000 * MIB)
    for rank in range(ranks):
        heap.alloc(rank * size, size * MIB, where=made)
    for other in range(between):
        heap.alloc(1500 + other, 4096, where="other4")
    if gone:
        heap.free(0, size * MIB)
    heap.alloc(500, joined * MIB, where=then)
    for rank in range(1 if gone else 0, ranks):
        heap.free(rank * size, size * MIB)
    return heap.trace()


def test_a_list_that_is_joined_is_found_with_its_bytes_and_place(heap):
    found = findings(gather(heap))["MD121"]
    assert number(found, "largest list") == 80 * MIB
    assert number(found, "tensor joined from") == 80 * MIB
    assert number(found, "lists of gathered shards, each joined into one tensor") == 1
    assert any(evidence.where == "train.py:8 fill8" for evidence in found.evidence)
    assert found.severity == "warning"  # the list is live at the peak
    assert found.saving.expected_bytes == 80 * MIB


def test_a_list_that_is_gone_at_the_moment_of_the_report_is_for_information(heap):
    (found,) = communication.analyze(gather(heap), Context(at=0))
    assert found.severity == "info"
    assert found.saving is None


def test_what_is_live_at_the_moment_looked_at_would_be_saved(heap):
    trace = gather(heap)
    (found,) = communication.analyze(trace, Context(at=5))
    assert found.severity == "warning"
    assert (found.saving.low_bytes, found.saving.expected_bytes, found.saving.basis) == (0, 80 * MIB, "estimated")


def test_the_ranks_own_shard_may_stand_apart(heap):
    assert "MD121" in findings(gather(heap, ranks=3))


def test_the_copy_that_the_library_makes_counts_too(heap):
    assert "MD121" in findings(gather(heap, made="lists8", then=["all_gather", "step3"]))


@pytest.mark.parametrize(
    "changed",
    [
        {"made": ["fill8", "step3"], "then": ["cat9", "step3"]},  # no gather
        {"made": ["fill8", "all_gather_into_tensor"], "then": ["cat9", "all_gather_into_tensor"]},
        {"made": ["fill8", "foreach_all_gather_copy_out"], "then": ["cat9", "foreach_all_gather"]},
        {"joined": 70},  # not the sum of the shards
        {"between": 20},  # not soon enough after the gather
        {"gone": True},  # the list was freed
        {"ranks": 1, "joined": 20},
        {"size": 1, "joined": 4},  # too few bytes
    ],
)
def test_what_only_looks_alike_is_silent(heap, changed):
    assert findings(gather(heap, **changed)) == {}


def _gathered_list():
    heap = Heap()
    heap.segment(0, 2000 * MIB)
    fill = ["metrics.py:14 gather_logits", "distributed_c10d.py:3200 all_gather", "train.py:61 evaluate"]
    for rank in range(8):
        heap.alloc(rank * 64, 64 * MIB, where=fill)
    heap.alloc(600, 512 * MIB, where=["metrics.py:16 gather_logits", "train.py:61 evaluate"])
    for rank in range(8):
        heap.free(rank * 64, 64 * MIB)
    return communication.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD121": _gathered_list,
}
