"""Bucket buffers are recognised by the library that allocates them, and by their lifetime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdiag.analyzers import buckets
from memdiag.analyzers.support.context import Context
from memdiag.trace.stacks import Frame, Stacks
from tests.analyzers.heaps import MIB, Heap

PARALLEL = "/lib/site-packages/torch/nn/parallel/distributed.py"
FILES = {
    "_ddp_init_helper": PARALLEL,
    "_pre_forward": PARALLEL,
    "buffers": "/code/megatron/core/distributed/param_and_grad_buffer.py",
    "setup_buckets": "/lib/site-packages/deepspeed/runtime/zero/stage_1_and_2.py",
}


def findings(trace):
    frames = [Frame(FILES.get(frame.name, frame.filename), frame.line, frame.name) for frame in trace.stacks.frames]
    trace = replace(trace, stacks=Stacks(frames, trace.stacks.offsets, trace.stacks.frame_ids))
    return list(buckets.analyze(trace, Context()))


def filled(heap, where, size=100, count=4, stay=True):
    """Allocates bucket buffers and other tensors."""
    heap.segment(0, 4000 * MIB)
    for i in range(count):
        heap.alloc(i * 200, size * MIB, where=where)
    heap.alloc(2000, 1000 * MIB, where="model3")
    if not stay:
        for i in range(count):
            heap.free(i * 200, size * MIB)
    return heap.trace()


@pytest.mark.parametrize(
    ("where", "library", "change"),
    [
        (["_ddp_init_helper", "__init__"], "DistributedDataParallel", "gradient_as_bucket_view=True"),
        (["_pre_forward", "forward"], "DistributedDataParallel", "gradient_as_bucket_view=True"),
        (["buffers", "__init__"], "Megatron", ""),
        (["setup_buckets", "backward"], "DeepSpeed", "reduce_bucket_size"),
    ],
)
def test_each_library_s_buckets_are_found_with_its_remedy(heap, where, library, change):
    (found,) = findings(filled(heap, where))
    assert found.code == "MD124"
    assert library in found.title
    assert found.evidence[0].value == 400 * MIB
    assert found.severity == "warning"
    assert change in found.fixes[0].change


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        (["relative_position_bucket", "forward"], {}),  # a function name with another kind of bucket
        (["sync5", "_pre_forward", "forward"], {}),  # another function, called within, allocates it
        (["_ddp_init_helper"], {"stay": False}),
        (["_ddp_init_helper"], {"size": 5}),  # too few bytes
    ],
)
def test_what_is_no_bucket_or_no_matter_is_silent(heap, where, changed):
    assert findings(filled(heap, where, **changed)) == []


def test_small_tensors_of_the_library_are_no_buffers(heap):
    heap.segment(0, 4000 * MIB)
    for i in range(200):
        heap.alloc(i * 2, MIB // 2, where=["setup_buckets"])
    assert findings(heap.trace()) == []


def _buckets():
    heap = Heap()
    heap.segment(0, 4000 * MIB)
    for i in range(4):
        heap.alloc(
            i * 200, 100 * MIB, where=["torch/nn/parallel/distributed.py:1240 _ddp_init_helper", "train.py:30 main"]
        )
    heap.alloc(2000, 1000 * MIB, where="model.py:31 forward")
    return buckets.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD124": _buckets,
}
