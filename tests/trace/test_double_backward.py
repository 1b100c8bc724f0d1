"""Categories in a training that computes gradients of gradients, and in one that passes outputs to another model."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.trace.stacks import Frame
from tests.trace.trainings import NO_FRAMES, born, names
from tests.training import BACKWARD, BATCH, LOSS, MIB, STEP, Training, forward


class Penalised(Training):
    """A training whose loss contains a gradient: a first backward keeps tensors for the second one."""

    def __init__(self, saved: int, count: int = 1, frames: tuple[Frame, ...] = NO_FRAMES) -> None:
        super().__init__()
        self.saved, self.count, self.frames = saved, count, frames

    def _backward(self, activations, size):
        self.phase = "backward"
        self.passing(4, BACKWARD)
        kept = [self.alloc(self.saved, self.frames, "activation") for _ in range(self.count)]
        self.phase = "forward"
        self.passing(512, forward(0))
        self.phase = "backward"
        self.passing(4, BACKWARD)
        for each in kept:
            self.free(each)
        super()._backward(activations, size)


@pytest.mark.parametrize(
    ("saved", "count", "frames", "category"),
    [
        (5 * MIB, 1, NO_FRAMES, "activation"),
        (8 * MIB, 1, NO_FRAMES, "gradient"),  # as large as the only weight of 8 MiB
        (8 * MIB, 2, NO_FRAMES, "activation"),
        (5 * MIB, 1, (*BACKWARD, *STEP), "activation"),  # in a closure, which the step of L-BFGS calls
    ],
)
def test_a_backward_keeps_activations_for_another_one(saved, count, frames, category):
    program = Penalised(saved, count, frames)
    program.initialise()
    for _ in range(3):
        program.step()
    device = program.trace().devices[0]
    kept = [
        row
        for row in born(device)
        if device.tensors.requested_bytes[row] == saved
        and PHASES[device.tensors.phase_alloc[row]] == PHASES[device.tensors.phase_free[row]] == "backward"
    ]
    assert names(CATEGORIES, device.tensors.category[kept]) == [category] * 3 * count


class Evaluated(Training):
    """A training that ends with an evaluation: a backward keeps tensors for another one, which does not follow."""

    def evaluate(self, size, count):
        self.phase = "forward"
        self.passing(512, forward(0))
        self.phase = "backward"
        self.passing(4, BACKWARD)
        kept = [self.alloc(size, NO_FRAMES, "activation") for _ in range(count)]
        self.phase = "outside"
        self.passing(512, BATCH)
        for each in kept:
            self.free(each, BATCH)


@pytest.mark.parametrize(
    ("size", "count", "recorded", "category"),
    [
        (5 * MIB, 4, True, "activation"),
        (5 * MIB, 1, True, "gradient"),  # perhaps of an input
        (8 * MIB, 4, True, "gradient"),  # of a weight
        (48 * MIB, 3, True, "gradient"),  # of each sample, of weights of 4, 8 and 12 MiB
        (48 * MIB, 4, True, "activation"),
        (5 * MIB, 4, False, "gradient"),  # the weights are not known
    ],
)
def test_tensors_for_a_second_backward_that_does_not_follow_are_activations(size, count, recorded, category):
    program = Evaluated()
    program.initialise()
    for _ in range(3):
        program.step()
    begin = len(program.entries)
    program.evaluate(size, count)
    said = np.zeros(len(program.entries), np.int8)
    said[1 : 1 + recorded * len(program.parameters)] = CATEGORIES.index("parameter")
    tensors = program.trace(category=said).devices[0].tensors
    rows = (tensors.requested_bytes == size) & (tensors.alloc_at >= begin)
    assert names(CATEGORIES, tensors.category[rows]) == [category] * count


def test_the_output_of_one_model_is_no_input_of_another():
    program = Training()
    program.initialise()
    for _ in range(3):
        program.step()
    allocs = [place for place, entry in enumerate(program.entries) if entry[0] == "alloc"]
    said = np.zeros(len(program.entries), np.int8)
    wanted = ["input", "activation"]
    places = [
        next(place for place in allocs if program.phases[place] == phase and program.entries[place][3] == frames)
        for phase, frames in (("outside", program.entries[allocs[3]][3]), ("forward", LOSS))
    ]
    said[places] = CATEGORIES.index("input")
    device = program.trace(category=said).devices[0]
    rows = born(device)[[allocs.index(place) for place in places]]
    assert names(CATEGORIES, device.tensors.category[rows]) == wanted
