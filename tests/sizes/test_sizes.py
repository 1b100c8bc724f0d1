"""The size rules for one request and for columns of requests agree, and match the boundaries of the original
allocators.
"""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.allocator.policies.npu.policy import NPU
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import rules_for
from memdiag.sizes import cuda, npu
from memdiag.trace.layout import allocation_sizes, are_split
from memdiag.units import GIB, MIB

EDGES = (
    512,
    MIB - 512,
    MIB,
    MIB + 512,
    2 * MIB,
    10 * MIB - 512,
    10 * MIB,
    10 * MIB + 512,
    20 * MIB,
    12 * MIB + 1024,
    GIB,
    GIB + 512,
)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
    ],
)
def test_a_new_segment(size: int, segment: int) -> None:
    assert cuda.get_allocation_size(size) == segment


def test_columns_of_requests_follow_the_rule_for_one() -> None:
    sizes = np.array(EDGES, np.int64)
    for large in (20 * MIB, 64 * MIB):
        assert allocation_sizes(sizes, large).tolist() == [cuda.get_allocation_size(size, large) for size in EDGES]


def test_huge_pages_of_npus() -> None:
    _, segment = NPU.block_and_segment_sizes(
        np.array(EDGES, np.int64) - npu.PAD, Conf(huge_pages=True), rules_for("npu", "2.6")
    )
    assert segment.tolist() == [2 * MIB if size <= MIB else GIB if size <= GIB else 2 * GIB for size in EDGES]


@pytest.mark.parametrize("is_fine", [False, True])
def test_columns_of_blocks_follow_the_rule_for_one(is_fine: bool) -> None:
    remaining = np.array((0, 256, 512, MIB, MIB + 512, 30 * MIB), np.int64)
    for size in (512, 20 * MIB, 64 * MIB):
        found = are_split(remaining, np.full(len(remaining), size), np.full(len(remaining), is_fine), 64 * MIB)
        assert found.tolist() == [
            cuda.should_split(rest, size, is_fine, False, 64 * MIB) for rest in remaining.tolist()
        ]


def test_oversize_blocks_serve_oversize_requests_only() -> None:
    assert cuda.oversize_from(20 * MIB, 64 * MIB, 20 * MIB) == 64 * MIB
    assert cuda.oversize_from(64 * MIB, 64 * MIB, 20 * MIB) == 84 * MIB
