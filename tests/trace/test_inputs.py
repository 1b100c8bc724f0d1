"""Tensors are input batches if their call site allocates batches, and none if it allocates results of a backward."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace.schema import CATEGORIES
from tests.trace.trainings import born, names
from tests.training import BATCH, MAIN, MIB, Frame, Training

JOIN = (Frame("/app/train.py", 50, "join"), MAIN)  # the gradients of several parts


class InParts(Training):
    """Accumulates the gradients of two batches in each step, and joins results of the first backward."""

    def __init__(self, *, optimizes=True):
        super().__init__()
        self.optimizes, self.joined = optimizes, -1

    def _forward(self, size):
        first = super()._forward(size)
        self._backward(first, size)
        self.phase = "outside"
        joined, self.joined = self.joined, self.alloc(size * 5, JOIN, "unknown")
        batch, self.batch = self.batch, self.alloc(size, BATCH, "input")
        for old in (joined, batch):
            if old >= 0:
                self.free(old)
        return super()._forward(size)

    def _optimize(self):
        if self.optimizes:
            super()._optimize()


@pytest.mark.parametrize("optimizes", [True, False])  # a fused optimizer allocates nothing
def test_results_of_backward_are_no_inputs(optimizes):
    program = InParts(optimizes=optimizes)
    program.initialise()
    for _ in range(4):
        program.step()
    device = program.trace().devices[0]
    found = names(CATEGORIES, device.tensors.category[born(device)])
    pairs = [
        (one, true) for one, (true, _, _) in zip(found, program.truth, strict=True) if true in ("input", "unknown")
    ]
    # the last results are live at the end; there is nothing to tell them from weights
    assert all((one == "input") == (true == "input") for one, true in pairs[1:-1]), pairs


def test_a_trace_that_begins_in_the_middle_has_inputs_after_backward():
    program = Training()
    program._optimize = lambda: None  # it allocates nothing, so no step is known
    program.initialise()
    for _ in range(4):
        program.step()
    begin = next(at for name, start, at in program.spans if name == "ProfilerStep#1" and start)
    device = program.trace(first=begin + 3).devices[0]  # after its batch
    found = names(CATEGORIES, device.tensors.category[born(device)])
    truth = [true for true, _, step in program.truth if step >= 1][1:]
    assert truth.count("input") == 2
    assert {one for one, true in zip(found, truth, strict=True) if true == "input"} == {"input"}


def test_batches_of_a_call_site_that_makes_inputs_are_inputs_before_a_model_reads_them():
    program = Training()
    program.initialise()
    other = (Frame("/app/train.py", 21, "table"), MAIN)
    for frames in (BATCH, BATCH, BATCH, other):  # a data set that is moved to the device at the start, and a table
        program.alloc(7 * MIB, frames, "input" if frames is BATCH else "unknown")
    for _ in range(4):
        program.step()
    allocs = [place for place, entry in enumerate(program.entries) if entry[0] == "alloc"]
    of_data = [place for place in allocs if program.entries[place][2] == 7 * MIB]
    said = np.zeros(len(program.entries), np.int8)
    said[of_data[0]] = CATEGORIES.index("input")  # the recorder saw only the first one enter the model
    device = program.trace(category=said).devices[0]
    rows = born(device)[[allocs.index(place) for place in of_data]]
    assert names(CATEGORIES, device.tensors.category[rows]) == ["input", "input", "input", "unknown"]
