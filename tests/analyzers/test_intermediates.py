"""The analyzer recognises chains of operators by the lifetime of each link, and ignores other runs of equal tensors."""

from __future__ import annotations

import pytest

from memdiag.analyzers import intermediates
from memdiag.analyzers.support.context import Context
from tests.analyzers.heaps import MIB, Heap


def findings(trace, **options):
    return {finding.code: finding for finding in intermediates.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def chain(heap, links=5, size=64, where="forward", overlap=True, kept=False, sizes=None):
    """Frees each tensor when the next one exists; the last one remains."""
    heap.segment(0, 4000 * MIB)
    last = None
    for i in range(links + 1):
        if last is not None and not overlap:
            heap.free(last[0], last[1])
        of = (sizes[i % len(sizes)] if sizes else size) * MIB
        heap.alloc(i * 100, of, where=[where, "block7"])
        if last is not None and overlap and not kept:
            heap.free(last[0], last[1])
        last = (i * 100, of)
    return heap.trace()


def test_a_chain_is_found_with_the_bytes_that_live_at_a_time(heap):
    found = findings(chain(heap))["MD123"]
    assert number(found, "temporary memory live at once in the largest chain") == 128 * MIB
    assert number(found, "temporary tensors of the largest chain") == 5
    assert number(found, "largest of 1 chain that starts at this call site") == 128 * MIB
    assert found.severity == "warning"  # two links are live at the peak
    assert found.saving.expected_bytes == 64 * MIB


def test_what_one_fused_operator_would_keep_is_no_saving(heap):
    found = findings(chain(heap), at=2)["MD123"]  # two links are live
    assert (found.saving.low_bytes, found.saving.expected_bytes, found.saving.basis) == (0, 64 * MIB, "estimated")
    assert found.severity == "warning"


def test_lines_below_the_same_forward_are_one_chain(heap):
    heap.segment(0, 4000 * MIB)
    for i in range(6):
        heap.alloc(i * 100, 64 * MIB, where=[f"norm{i + 2}", "forward", "block7"])
        if i:
            heap.free((i - 1) * 100, 64 * MIB)
    assert number(findings(heap.trace())["MD123"], "temporary tensors of the largest chain") == 5


@pytest.mark.parametrize(
    "changed",
    [
        {"links": 3},  # too short
        {"size": 8},  # too few bytes
        {"where": "step"},  # outside all modules
        {"overlap": False},  # each link is freed before the next one is allocated
        {"kept": True},  # retained for backward: activations
        {"sizes": (64, 65)},
    ],
)
def test_other_runs_are_silent(heap, changed):
    assert findings(chain(heap, **changed)) == {}


def test_a_chain_that_is_small_beside_the_peak_is_silent(heap):
    heap.segment(10_000, 20_000 * MIB)
    heap.alloc(10_000, 20_000 * MIB, where="model")
    assert findings(chain(heap)) == {}


def test_what_stays_until_the_pass_back_is_no_link_however_near_the_end_of_its_run(heap):
    heap.segment(0, 4000 * MIB)
    for i in range(5):
        heap.alloc(i * 100, 64 * MIB, where=["forward", "block7"])
    for i in range(20):
        heap.alloc(600 + i * 100, 64 * MIB, where=["forward", f"other{i}"])
    for i in range(5):
        heap.free(i * 100, 64 * MIB)
    assert findings(heap.trace()) == {}


def _chain():
    heap = Heap()
    heap.segment(0, 4000 * MIB)
    for i in range(6):
        heap.alloc(i * 100, 64 * MIB, where=[f"softmax.py:{12 + i} forward", "model.py:31 forward"])
        if i:
            heap.free((i - 1) * 100, 64 * MIB)
    return intermediates.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD123": _chain,
}
