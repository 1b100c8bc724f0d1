"""The analyzer reports sizes that change from step to step, but not sizes that merely differ within a step.

Only requests that reserved new memory despite enough free bytes count.
"""

from __future__ import annotations

import pytest

from memdiag.allocator.subject import Subject
from memdiag.analyzers import changing_sizes
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support import habits_judged
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from tests.analyzers.page_examples import read_example

MIB = 1 << 20
SMALL = 1 << 20  # MiB: address of the small tensor of backward, which ends a step
MODEL = ("forward", "model7")


def train(heap, steps, *, where=MODEL, reuse=False, expandable=False):
    """Adds one step per entry; an entry has the sizes (MiB) requested in the step.

    Every request gets a new segment; with ``reuse``, it reuses a segment of the same size.
    """
    heap.segment(SMALL, 2 * MIB)
    place, of_size = 0, {}
    for sizes in steps:
        for size in sizes:
            if not (reuse and size in of_size):
                of_size[size], place = place, place + 4096
                heap.segment(of_size[size], size * MIB, where=where, expandable=expandable)
            heap.alloc(of_size[size], size * MIB, where=where)
            heap.free(of_size[size], size * MIB)
        heap.alloc(SMALL, 4096, where="backward")
        heap.free(SMALL, 4096)
    return heap.trace()


def findings(trace):
    return {finding.code: finding for finding in changing_sizes.analyze(trace, Context())}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def test_sizes_that_are_new_in_every_step_are_found_with_what_they_took(heap):
    found = findings(train(heap, [(64,), (60,), (72,), (58,), (70,), (66,)]))["MD126"]
    # 72 MiB did not fit although 124 MiB were free, and 60 did not fit into 64: all requests after the first step
    # count.
    assert number(found, "no cached block fitted") == 5
    assert number(found, "memory reserved from the driver for these requests") == (60 + 72 + 58 + 70 + 66) * MIB
    assert number(found, "most free cached memory") == (64 + 60 + 72 + 58 + 70 + 2) * MIB
    assert number(found, "call sites whose sizes change") == 1
    assert number(found, "distinct sizes requested by this call site, 58.00 MiB to 72.00 MiB") == 6
    assert found.title.startswith("Sizes change from step to step under train.py:7 model7 → train.py:1 forward: 5 ")
    assert found.severity == "warning"
    assert [fix.change for fix in found.fixes] == ["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", ""]


def test_new_memory_for_more_than_was_free_is_no_miss(heap):
    assert findings(train(heap, [(16,), (40,), (90,), (200,), (500,), (1100,)])) == {}


@pytest.mark.parametrize(
    "steps",
    [
        [(64, 60, 72, 58)] * 6,  # many sizes, but the same ones in every step: layers
        [(64,)] * 5 + [(60,)],  # a shorter batch at the end
        [(64,), (60,), (72,)],  # too few steps to decide
        [(6,), (5,), (7,), (4,), (8,), (3,)],  # too few bytes
    ],
)
def test_other_sizes_are_silent(heap, steps):
    assert findings(train(heap, steps)) == {}


def test_sizes_that_settle_are_warm_up(heap):
    steps = [(64,), (60,), (72,), (58,), *[(64,), (60,)] * 20]
    assert findings(train(heap, steps)) == {}


def test_cached_blocks_that_fit_cost_nothing(heap):
    assert findings(train(heap, [(64,), (60,), (64,), (60,), (64,), (60,)], reuse=True)) == {}


@pytest.mark.parametrize("where", ["", "copy3"])  # no stack; no forward or backward that separates steps
def test_without_places_or_steps_nothing_is_said(heap, where):
    assert findings(train(heap, [(64,), (60,), (72,), (58,), (70,), (66,)], where=where)) == {}


def test_with_expandable_segments_they_are_not_recommended(heap):
    found = findings(train(heap, [(64,), (60,), (72,), (58,), (70,), (66,)], expandable=True))["MD126"]
    assert [fix.kind for fix in found.fixes] == ["code"]


def test_retries_for_such_requests_are_counted(heap):
    heap.segment(SMALL, 2 * MIB)
    place = last = 0
    for size in (64, 60, 72, 58, 70, 66):
        if last:
            heap.release(place - 4096, last * MIB, where=MODEL)
        heap.segment(place, size * MIB, where=MODEL)
        heap.alloc(place, size * MIB, where=MODEL)
        heap.free(place, size * MIB)
        heap.alloc(SMALL, 4096, where="backward")
        heap.free(SMALL, 4096)
        place, last = place + 4096, size
    found = findings(heap.trace())["MD126"]
    assert (
        number(found, "after the allocator released cached memory") == 3
    )  # 60, 58 and 66 were smaller than the free memory
    assert found.severity == "warning"


def test_batches_of_many_lengths_are_replayed_with_expandable_segments_and_with_padding(root):
    trace = load(root / "examples" / "gpt-train.pickle")
    found = next(finding for finding in build_report(trace).findings if finding.code == "MD126")
    assert found.saving.basis == "simulated"
    assert found.saving.repro.endswith("--conf expandable_segments:True")
    padded = number(found, "rounded to eighths")
    assert padded < trace.devices[0].usage.reserved.max()
    subject, view = Subject.of(trace, trace.devices[0]), next(Context().views(trace))
    few = habits_judged.padded(subject.workload, changing_sizes.find_changing(view).asks)
    grown = few.size - subject.workload.size
    assert (grown >= 0).all()
    assert (grown <= subject.workload.size // 8).all()
    assert ((grown > 0) <= (subject.workload.size > MIB)).all()


PAGE_EXAMPLES = {
    "MD126": read_example,
}
