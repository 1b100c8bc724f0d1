"""Keys and values that a model caches in forward are a KV cache in generation, and activations in training."""

from __future__ import annotations

import pytest

from memdiag.analyzers import peak
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import CATEGORIES
from tests.training import BATCH, MIB, Frame, Training, forward

UPDATE = (Frame("/env/lib/python3.11/site-packages/transformers/cache_utils.py", 136, "update"), *forward(0)[1:])


def categories(program, size):
    """Returns the categories of the tensors of one size, in order of allocation."""
    (device,) = program.trace().devices
    return [CATEGORIES[device.tensors.category[row]] for row in (device.tensors.requested_bytes == size).nonzero()[0]]


def generated(num_tokens, size, frames=UPDATE):
    """Returns a program that runs its model for each token, and replaces a tensor of the model each time."""
    program = Training(size=4 * MIB)
    program.initialise()
    cached = None
    for _ in range(num_tokens):
        program.phase = "forward"
        program.passing(4 * MIB, forward(0))
        before, cached = cached, program.alloc(size, frames, "unknown")
        if before is not None:
            program.free(before)
        program.phase = "outside"
        program.passing(MIB, BATCH)
    return program


def test_keys_and_values_of_a_generation_are_a_cache():
    program = generated(30, 96 * MIB)
    assert set(categories(program, 96 * MIB)) == {"kv_cache"}
    [finding] = peak.analyze(program.trace(), Context())
    assert (finding.code, [fix.title.key for fix in finding.fixes]) == ("MD103", ["remedies.generation"])


def test_those_of_a_forward_that_ran_out_of_memory_are_a_cache_if_earlier_ones_were():
    program = generated(30, 96 * MIB)
    program.alloc(160 * MIB, UPDATE, "kv_cache")
    program.fail(320 * MIB, forward(1))
    assert categories(program, 160 * MIB) == ["kv_cache"]


def test_without_backward_there_is_nothing_to_recompute():
    [finding] = peak.analyze(generated(30, 96 * MIB, forward(0)).trace(), Context())
    assert (finding.code, [fix.title.key for fix in finding.fixes]) == ("MD101", ["remedies.batch"])


def test_a_model_that_only_runs_has_no_gradients_to_shard():
    program = generated(30, 4 * MIB, forward(0))
    [finding] = peak.analyze(program.trace(), Context())
    assert (finding.code, [fix.title.key for fix in finding.fixes]) == ("MD102", ["remedies.smaller-model"])


@pytest.mark.parametrize("is_finished", [True, False])
def test_those_of_a_training_are_activations(is_finished):
    """Models of Transformers fill a cache in training, too."""
    program = Training(size=4 * MIB)
    program.initialise()
    for step in range(4):
        program.phase = "forward"
        kept = program.alloc(96 * MIB, UPDATE, "activation")
        if step == 3 and not is_finished:
            program.fail(320 * MIB, forward(1))
            break
        program.step()
        program.free(kept)
    assert set(categories(program, 96 * MIB)) == {"activation"}
