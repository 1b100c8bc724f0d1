"""Categories in a training that computes gradients of gradients, and in one that passes outputs to another model."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace.schema import CATEGORIES
from tests.trace.trainings import NO_FRAMES, born, names
from tests.training import BACKWARD, LOSS, MIB, Training, forward


class Penalised(Training):
    """A training whose loss contains a gradient: a first backward keeps tensors for the second one."""

    def __init__(self, saved: int) -> None:
        super().__init__()
        self.saved = saved

    def _backward(self, activations, size):
        self.phase = "backward"
        self.passing(4, BACKWARD)
        kept = self.alloc(self.saved, NO_FRAMES, "activation")
        self.phase = "forward"
        self.passing(512, forward(0))
        self.phase = "backward"
        self.passing(4, BACKWARD)
        self.free(kept)
        super()._backward(activations, size)


@pytest.mark.parametrize(("saved", "category"), [(5 * MIB, "activation"), (8 * MIB, "gradient")])
def test_a_backward_keeps_activations_for_another_one_and_gradients_have_the_size_of_a_weight(saved, category):
    program = Penalised(saved)
    program.initialise()
    for _ in range(3):
        program.step()
    device = program.trace().devices[0]
    rows = [
        row
        for row in born(device)
        if device.tensors.requested_bytes[row] == saved and CATEGORIES[device.tensors.category[row]] == category
    ]
    # a real gradient of 8 MiB exists in each step, too
    assert len(rows) == (3 if category == "activation" else 6)


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
