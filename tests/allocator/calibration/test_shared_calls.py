"""The number of calls that two runs share from the beginning is counted correctly."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.allocator.calibration.shared_calls import shared_calls
from memdiag.allocator.workload import ALLOC, EMPTY_CACHE, FREE, FREE_COMPLETED, FREE_REQUESTED, Workload
from memdiag.trace.layout import Layout

NONE_FAILED = 10**6


def workload(*calls, streams=2):
    """Returns a workload of calls, each given as (op, tensor, size, stream)."""
    op, tensor, size, stream = (np.array(column) for column in zip(*calls, strict=True))
    return Workload(
        op.astype(np.int8),
        tensor.astype(np.int32),
        size,
        stream.astype(np.int32),
        np.full(len(op), -1, np.int32),
        np.arange(len(op)),
        len(op),
        int(tensor.max()) + 1,
        np.arange(streams, dtype=np.uint64),
    )


A, B = (ALLOC, 0, 1000, 0), (ALLOC, 1, 2000, 0)
FREE_A = (FREE, 0, 0, 0)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((A, B, FREE_A), (A, B, FREE_A), (3, 3)),
        ((A, B), (A, B, FREE_A), (2, 2)),
        ((A, (ALLOC, 1, 2001, 0)), (A, B), (1, 1)),  # another size
        ((A, B, FREE_A), (A, B, (FREE, 1, 0, 0)), (2, 2)),  # another tensor is freed
        (
            (A, FREE_A),
            (A, (FREE_REQUESTED, 0, 0, 0), (FREE_COMPLETED, 0, 0, 0)),
            (2, 2),
        ),  # the allocator decides when a free is complete
        ((A, (EMPTY_CACHE, -1, 0, -1), B), (A, B), (3, 2)),  # the allocator also decides when cached memory is released
        ((A, B), ((ALLOC, 7, 1000, 0), (ALLOC, 3, 2000, 0)), (2, 2)),  # tensor numbers are only rows of a table
        (
            (A, (ALLOC, 1, 2000, 1)),
            ((ALLOC, 0, 1000, 1), (ALLOC, 1, 2000, 0)),
            (2, 2),
        ),  # streams match by first use
        ((A, (ALLOC, 1, 2000, 1)), (A, B), (1, 1)),
        (((ALLOC, 0, 1, 0),), (A,), (0, 0)),
    ],
)
def test_the_common_part(one, other, shared):
    assert shared_calls(workload(*one), workload(*other), NONE_FAILED, Layout()) == shared


def test_of_a_request_that_failed_the_rounded_size_is_known():
    failed = workload(A, (ALLOC, 1, 2048, 0))
    assert shared_calls(failed, workload(A, B), 1, Layout()) == (2, 2)
    assert shared_calls(failed, workload(A, B), NONE_FAILED, Layout()) == (1, 1)
    assert shared_calls(failed, workload(A, (ALLOC, 1, 2049, 0)), 1, Layout()) == (1, 1)
