"""Buckets of DistributedDataParallel are buffers of collectives, neither parameters nor inputs."""

from __future__ import annotations

import pytest

from memdiag.trace.schema import CATEGORIES
from memdiag.trace.stacks import Frame
from tests.trace.trainings import NO_FRAMES, names
from tests.training import MAIN, MIB, Training

PARALLEL = "/env/lib/python3.11/site-packages/torch/nn/parallel/distributed.py"
FORWARD = Frame(PARALLEL, 1682, "forward")  # the file has a forward, so its constructor looks like that of a model
CONSTRUCTOR = (Frame(PARALLEL, 1230, "_ddp_init_helper"), Frame(PARALLEL, 850, "__init__"), MAIN)
REBUILT = (Frame(PARALLEL, 1560, "_pre_forward"), FORWARD, MAIN)
REGISTERED = (Frame(PARALLEL, 700, "register"), *CONSTRUCTOR)  # a function that the caller of the reducer calls


class Parallel(Training):
    """A training whose gradients are copied to a bucket; ``rebuilt``: the second forward requests the bucket anew."""

    def __init__(self, *, rebuilt: bool) -> None:
        super().__init__()
        self.rebuilt, self.bucket = rebuilt, -1

    def initialise(self) -> None:
        super().initialise()
        self.bucket = self.alloc(24 * MIB, CONSTRUCTOR, "collective")

    def _forward(self, size):
        if self.now == 1 and self.rebuilt:
            bucket = self.alloc(24 * MIB, REBUILT, "collective")
            self.free(self.bucket)
            self.bucket = bucket
        return super()._forward(size)


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("num_steps", [2, 4])
def test_buckets_are_buffers_of_collectives(rebuilt, num_steps):
    program = Parallel(rebuilt=rebuilt)
    program.initialise()
    program.alloc(512, (FORWARD, MAIN), "unknown")
    for _ in range(num_steps):
        program.step()
    program.free(program.bucket)  # when the program ends, in the last step
    tensors = program.trace().devices[0].tensors
    mine = tensors.requested_bytes == 24 * MIB
    assert names(CATEGORIES, tensors.category[mine]) == ["collective"] * (1 + rebuilt)
    assert (tensors.category == CATEGORIES.index("parameter")).sum() == program.layers


@pytest.mark.parametrize(
    ("stack", "category"),
    [
        (REGISTERED, "parameter"),
        ((Frame("", 0, "c10d::Reducer::initialize_buckets"), *CONSTRUCTOR), "collective"),
        ((Frame("", 0, "c10d::Reducer::initialize_buckets"),), "collective"),
        (NO_FRAMES, "unknown"),
    ],
)
def test_the_innermost_python_frame_calls_the_reducer(stack, category):
    program = Training()
    program.initialise()
    kept = program.alloc(20 * MIB, stack, category)
    program.alloc(512, (FORWARD, MAIN), "unknown")
    for _ in range(3):
        program.step()
    tensors = program.trace().devices[0].tensors
    (found,) = names(CATEGORIES, tensors.category[tensors.addr == kept])
    assert found == category
