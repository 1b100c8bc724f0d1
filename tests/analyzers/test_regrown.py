"""The analyzer reports tensors that one call site reallocates slightly larger, in a long series with much memory."""

from __future__ import annotations

import pytest

from memdiag.analyzers import regrown
from memdiag.analyzers.support.context import Context
from tests.analyzers.heaps import MIB, Heap


def findings(trace):
    return list(regrown.analyze(trace, Context()))


def grown(heap, sizes, *, late=False, elsewhere=False, other=0):
    """Returns a trace that allocates tensors of ``sizes`` MiB in turn.

    Each tensor is freed right after the allocation of the next one, or with ``late`` only after five other frees.
    With ``elsewhere``, each tensor has another call site. ``other`` are MiB of another live tensor.
    """
    heap.segment(0, 2100 * MIB, where=["main"])
    if other:
        heap.alloc(2000, other * MIB, where=["main"])
    for k, size in enumerate(sizes):
        heap.alloc(1000 * (k % 2), size * MIB, where=[f"cat{k}" if elsewhere else "cat", "decode"])
        for small in range(5 * late):
            heap.alloc(3000 + small, MIB, where=["decode"])
            heap.free(3000 + small, MIB, where=["decode"])
        if k:
            heap.free(1000 * ((k + 1) % 2), sizes[k - 1] * MIB, where=["cat", "decode"])
    return heap.trace()


def test_a_cache_that_is_joined_with_what_is_new(heap):
    (finding,) = findings(grown(heap, range(100, 120, 2)))
    assert finding.title.endswith("up to 9 times each, to 118.00 MiB, at train.py:1 cat")
    assert finding.evidence[0].value == (116 + 118) * MIB  # the old and the new tensor
    assert finding.evidence[1].value == sum(range(102, 120, 2)) * MIB
    assert finding.evidence[-1].where == "train.py:1 cat"


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        (range(100, 108, 2), {}),  # too few tensors
        ([100, 90, 110, 80, 120, 70, 130, 60], {}),  # sizes go up and down: batches of changing length
        (range(120, 100, -2), {}),
        (range(100, 120, 2), {"late": True}),
        (range(100, 120, 2), {"elsewhere": True}),
        (range(4, 24, 2), {"other": 2000}),  # too few bytes
    ],
)
def test_what_does_not_grow_so(heap, sizes, options):
    assert not findings(grown(heap, list(sizes), **options))


def test_batches_of_random_length_grow_in_a_row_now_and_then(heap):
    rising = range(150, 170, 2)
    assert findings(grown(heap, [*rising, *([220, 160, 230, 155] * 5)])) == []


def _regrown():
    heap = Heap()
    append = ["cache.py:31 append", "generate.py:12 decode"]
    heap.segment(0, 2100 * MIB, where="generate.py:12 decode")
    for k, size in enumerate(range(100, 140, 2)):
        heap.alloc(1000 * (k % 2), size * MIB, where=append)
        if k:
            heap.free(1000 * ((k + 1) % 2), (size - 2) * MIB, where=append)
    return regrown.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD128": _regrown,
}
