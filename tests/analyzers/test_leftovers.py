"""Memory left by initialisation is reported only if the program does not use it later."""

from __future__ import annotations

import pytest

from memdiag.analyzers import leftovers
from memdiag.analyzers.support.context import Context
from tests.analyzers.heaps import MIB, Heap

INIT = ["_apply", "to", "load3"]
PASS = ["forward", "step4"]


def findings(trace, **options):
    return list(leftovers.analyze(trace, Context(**options)))


def loaded(heap, stays=0, used=0, released=False, early=True):
    """Allocates a temporary of 200 MiB, a weight after it (``stays``), and a step that uses part of its memory
    (``used``).
    """
    heap.segment(0, 400 * MIB, where=INIT)
    heap.alloc(0, 200 * MIB, where=INIT if early else PASS)
    if stays:
        heap.alloc(200, stays * MIB, where=INIT)
    heap.free(0, 200 * MIB, where=INIT)
    if released:
        heap.release(0, 400 * MIB)
    heap.alloc(1000, 0, where=PASS)
    if used:
        heap.alloc(0, used * MIB, where=PASS)
    heap.segment(2000, 500 * MIB, where=PASS)
    heap.alloc(2000, 500 * MIB, where=PASS)
    return heap.trace()


def test_a_wholly_free_segment_can_be_given_back(heap):
    (found,) = findings(loaded(heap))
    assert found.evidence[0].value == 400 * MIB
    assert (found.saving.low_bytes, found.saving.expected_bytes, found.saving.high_bytes) == (400 * MIB,) * 3
    assert found.severity == "warning"
    assert "empty_cache()" in found.fixes[0].title
    assert found.evidence[-1].where == "train.py:1 _apply"


def test_where_a_weight_stayed_nothing_can_be_given_back(heap):
    (found,) = findings(loaded(heap, stays=100))
    assert found.evidence[0].value == 300 * MIB
    assert found.saving is None
    assert "Load on the CPU" in found.fixes[0].title


def test_what_is_used_later_is_no_leftover(heap):
    (found,) = findings(loaded(heap, used=150))
    assert found.evidence[0].value == 250 * MIB
    assert found.saving is None


@pytest.mark.parametrize(
    "changed",
    [{"stays": 190, "used": 190}, {"stays": 200, "used": 150}, {"used": 390}, {"released": True}, {"early": False}],
)
def test_nothing_is_left_where_it_is_filled_or_given_back(heap, changed):
    assert findings(loaded(heap, **changed)) == []


def test_a_moment_within_initialisation_is_silent(heap):
    assert findings(loaded(heap), at=2) == []


def _leftovers():
    heap = Heap()
    load_, step = ["load.py:22 to_bfloat16", "train.py:15 main"], ["model.py:31 forward", "train.py:40 step"]
    heap.segment(0, 400 * MIB, where=load_)
    heap.segment(500, 400 * MIB, where=load_)
    heap.alloc(0, 400 * MIB, where=load_)
    heap.alloc(500, 300 * MIB, where=load_)
    heap.alloc(800, 100 * MIB, where=load_)
    heap.free(0, 400 * MIB, where=load_)
    heap.free(500, 300 * MIB, where=load_)
    heap.segment(2000, 500 * MIB, where=step)
    heap.alloc(2000, 500 * MIB, where=step)
    return leftovers.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD125": _leftovers,
}
