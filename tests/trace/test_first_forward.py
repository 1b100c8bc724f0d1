"""Categories of tensors that are live when memory runs out in the first forward, without earlier steps to go by."""

from __future__ import annotations

from memdiag.trace.schema import CATEGORIES
from tests.trace.trainings import born, names
from tests.training import MIB, Training, forward


def test_what_a_program_frees_after_its_failure_was_in_use_until_then():
    def failed(*, frees: bool):
        program = Training()
        program.initialise()
        program.phase = "forward"
        program.now = 0
        kept = [program.alloc(2 * MIB, forward(layer % 3), "activation") for layer in range(9)]
        program.fail(1 << 41, forward(0))
        for addr in kept if frees else ():
            program.free(addr)
        return program.trace().devices[0].tensors

    ended, written_later = failed(frees=False), failed(frees=True)
    assert written_later.category.tolist() == ended.category.tolist()
    assert written_later.lifetime.tolist() == ended.lifetime.tolist()
    assert "activation" in names(CATEGORIES, written_later.category)


def test_tensors_of_an_unfinished_first_forward_that_outlive_all_temporary_ones_of_their_call_site_are_activations():
    program = Training()
    program.initialise()
    program.phase = "forward"
    program.now = 0
    for _ in range(20):  # the softmax of each layer first converts its input
        program.passing(2 * MIB, forward(0))
        program.alloc(2 * MIB, forward(0), "activation")
    program.fail(1 << 41, forward(0))
    device = program.trace().devices[0]
    softmaxes = born(device)[program.layers + 1 :: 2]
    assert names(CATEGORIES, device.tensors.category[softmaxes[:-1]]) == ["activation"] * 19
