"""``would_fit`` finds out if a request fits, and names the live tensors that block it."""

import numpy as np
import pytest

from memdiag.analyzers.support.fit import would_fit

MIB = 1 << 20


def test_what_stands_in_the_way_of_the_worked_example(example):
    trace, before = example
    device = trace.devices[0]
    topology = device.topology(before)
    reference = int(device.usage.reference[before])
    fit = would_fit(topology, int(device.references.group[reference]), 32 * MIB)
    # the two free blocks of S1, and all of S2
    assert (fit.fits, fit.missing_bytes, fit.num_free, fit.free_bytes) == (
        False,
        8 * MIB,
        3,
        52 * MIB,
    )
    assert fit.between_bytes == 4 * MIB
    assert [trace.stacks.label(int(device.tensors.stack[row])) for row in fit.between] == ["train.py:2 b2"]


def test_a_request_fits_where_one_range_is_large_enough(example):
    trace, before = example
    device = trace.devices[0]
    fit = would_fit(device.topology(before), int(device.references.group[device.usage.reference[before]]), 24 * MIB)
    assert fit.fits
    assert fit.missing_bytes == 0
    assert not len(fit.between)


def test_no_range_is_named_where_no_segment_is_as_long_as_the_request(example):
    trace, before = example
    device = trace.devices[0]
    fit = would_fit(device.topology(before), int(device.references.group[device.usage.reference[before]]), 41 * MIB)
    assert fit.range_bytes == 0
    assert not len(fit.between)


def slow_cheapest(topology, group, request):
    """Computes the cheapest range slowly, by checking every run of blocks of every segment."""
    best = None
    segment, size, tensor = (topology.blocks[name] for name in ("segment", "size", "tensor"))
    for i in range(len(size)):
        for j in range(i, len(size)):
            same = segment[j] == segment[i] and topology.segments["group"][segment[i]] == group
            if same and size[i : j + 1].sum() >= request:
                cost = int(size[i : j + 1][tensor[i : j + 1] >= 0].sum())
                best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_cheapest_range_is_the_one_a_slow_search_finds(seed, heap):
    random = np.random.default_rng(seed)
    for number_of in range(3):
        start = number_of * 200
        heap.segment(start, 100 * MIB)
        sizes = random.integers(2, 9, 12)
        offsets = np.cumsum(sizes) - sizes
        for offset, size in zip(offsets, sizes, strict=True):
            heap.alloc(start + int(offset), int(size) * MIB)
        for offset, size in zip(offsets, sizes, strict=True):
            if random.random() < 0.5:
                heap.free(start + int(offset), int(size) * MIB)
    trace = heap.trace()
    topology = trace.devices[0].topology(trace.num_events - 1)
    group = int(topology.segments["group"][0])
    for request in (10 * MIB, 30 * MIB, 70 * MIB, 100 * MIB):
        fit = would_fit(topology, group, request)
        if fit.fits:
            continue
        assert fit.between_bytes == slow_cheapest(topology, group, request)
