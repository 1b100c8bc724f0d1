"""Heaps for the tests of analyzers."""

from __future__ import annotations

import pytest

from tests.analyzers.heaps import MIB, Heap


@pytest.fixture
def heap():
    """An empty heap."""
    return Heap()


@pytest.fixture
def example(heap):
    """The worked example of docs/fragmentation.md, up to the event just before X."""
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.free(0, 40 * MIB)
    heap.alloc(0, 12 * MIB, where="a1")
    heap.alloc(12, 4 * MIB, where="b2")
    heap.alloc(16, 24 * MIB, where="c3")
    heap.segment(100, 16 * MIB)
    heap.alloc(100, 16 * MIB)
    heap.free(100, 16 * MIB)
    heap.free(0, 12 * MIB)
    heap.free(16, 24 * MIB)
    heap.segment(200, 2 * MIB)
    heap.alloc(200, 1000)
    heap.segment(300, 20 * MIB, stream=7)
    heap.alloc(300, 4 * MIB, stream=7)
    heap.alloc(304, 6 * MIB, stream=7)
    before = heap.free(304, 6 * MIB, stream=7, pending=True)
    heap.segment(400, 32 * MIB)
    heap.alloc(400, 32 * MIB, where="x9")
    return heap.trace(), before
