"""PyTorch requests a smaller workspace of a convolution if a larger one fails."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.allocator.result import OK, OUT_OF_MEMORY
from memdiag.allocator.workload import ALLOC, FREE, Workload
from memdiag.fix.workspaces import ConvolutionWorkspaces, _following

LISTS = ((900, 900, 950, 300), (700, 70, 0))


def requests(*sizes, kept=()):
    """Returns a program that frees each tensor at once, except those of some sizes."""
    calls = [
        (op, tensor, size)
        for tensor, size in enumerate(sizes)
        for op in (ALLOC, FREE)
        if op == ALLOC or size not in kept
    ]
    op, tensor, size = (np.array(column, np.int64) for column in zip(*calls, strict=True))
    zeros = np.zeros(len(op), np.int64)
    size = np.where(op == ALLOC, size, 0)
    return Workload(op, tensor, size, zeros, zeros, zeros, 1, len(sizes), np.zeros(1, np.uint64))


def within(room):
    """Returns a replay in which larger requests fail."""

    def replay(workload):
        fails = (workload.op == ALLOC) & (workload.size > room)
        return SimpleNamespace(status=np.where(fails, OUT_OF_MEMORY, OK), workload=workload)

    return replay


def served(workspaces, workload, room):
    found = workspaces.replayed(workload, within(room))
    return None if found is None else found.workload.size[is_alloc(found) & (found.status == OK)].tolist()


def is_alloc(found):
    return found.workload.op == ALLOC


@pytest.mark.parametrize(
    ("size", "is_searching", "following"),
    [
        (900, False, 300),
        (700, False, 70),
        (70, False, 0),
        (950, False, 300),
        (950, True, 475),
        (900, True, 300),
        (5, True, 0),
    ],
)
def test_the_next_engine_or_half_of_the_largest_workspace_follows(size, is_searching, following):
    assert _following(size, LISTS, is_searching=is_searching) == following


def test_later_convolutions_of_the_same_kind_use_the_engine_that_ran():
    workspaces = ConvolutionWorkspaces({900: 300, 300: 0, 700: 70, 70: 0})
    assert served(workspaces, requests(900, 20, 900), 1000) == [900, 20, 900]
    assert served(workspaces, requests(900, 20, 900, 700), 800) == [300, 20, 300, 700]
    assert served(workspaces, requests(900, 20, 700), 50) == [20]


def test_the_first_failed_request_of_each_size_stays_because_it_releases_cached_memory():
    workspaces = ConvolutionWorkspaces({900: 300, 300: 0, 700: 70, 70: 0})
    found = workspaces.replayed(requests(900, 20, 700, 900), within(50))
    assert found.workload.size[is_alloc(found)].tolist() == [900, 300, 20, 700, 70]
    assert found.workload.num_tensors == 4 + 4
    assert (np.diff(np.flatnonzero(is_alloc(found))) == 2).all()  # a free follows each request


def test_a_request_that_is_not_freed_at_once_must_not_fail():
    assert served(ConvolutionWorkspaces({900: 300, 300: 0}), requests(900, 20, kept={900}), 800) is None
    assert served(ConvolutionWorkspaces({900: 300, 300: 0}), requests(500, 20), 400) is None
