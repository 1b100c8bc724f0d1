"""A checkpoint on the device is reported only if the model has tensors of the same sizes."""

from __future__ import annotations

import pytest

from memdiag.analyzers import loaded_twice
from memdiag.analyzers.support.context import Context
from tests.training import MAIN, MIB, MOVE, Frame, Training

LOAD = (
    Frame("/env/lib/python3.11/site-packages/torch/serialization.py", 2147, "load_tensor"),
    Frame("/app/train.py", 15, "resume"),
    MAIN,
)


def found(sizes, *, forget=False):
    """Returns the findings for a model of 32, 64 and 96 MiB, with tensors of these ``sizes`` (MiB) from a loader."""
    program = Training(size=32 * MIB)
    program.initialise()
    loaded = [program.alloc(size * MIB, LOAD, "unknown") for size in sizes]
    if forget:
        for addr in loaded:
            program.free(addr)
    for _ in range(3):
        program.step(scale=0.25)
    return list(loaded_twice.analyze(program.trace(), Context()))


def test_what_was_loaded_and_is_there_once_more():
    (finding,) = found([32, 64, 96])
    facts = {fact.what.key: (fact.value, fact.where) for fact in finding.evidence}
    assert facts["loaded_twice.copies"][0] == 192 * MIB
    assert facts["loaded_twice.count"][0] == 3
    assert facts["loaded_twice.site"][1] == "train.py:15 resume"
    assert 'map_location="cpu"' in finding.fixes[0].change


def test_only_as_many_as_there_are_others_alike():
    (finding,) = found([32, 64, 64, 64, 64, 64, 500])
    assert finding.evidence[0].value < (32 + 5 * 64) * MIB


def test_what_was_freed_or_has_no_like_is_no_copy():
    assert not found([32, 64, 96], forget=True)
    assert not found([33, 65, 97])


@pytest.mark.parametrize(("count", "is_found"), [(3, False), (4, True)])
def test_a_few_tensors_of_one_size_may_coincide_by_chance(count, is_found):
    program = Training(layers=1, size=16 * MIB)
    program.initialise()
    for _ in range(count):
        program.alloc(64 * MIB, MOVE, "parameter")
        program.alloc(64 * MIB, LOAD, "unknown")
    for _ in range(3):
        program.step(scale=0.25)
    assert bool(list(loaded_twice.analyze(program.trace(), Context()))) == is_found


def test_state_that_an_optimizer_made_for_loaded_weights_is_no_other_copy_of_them():
    program = Training(size=32 * MIB)
    program.parameters = [program.alloc(32 * (1 + layer) * MIB, LOAD, "parameter") for layer in range(3)]  # assign=True
    for _ in range(3):
        program.step(scale=0.25)
    assert not list(loaded_twice.analyze(program.trace(), Context()))


def test_loaded_state_counts_beside_the_weights():
    (finding,) = found([32, 64, 96] * 3)
    assert finding.evidence[0].value == 3 * 192 * MIB


PAGE_EXAMPLES = {
    "MD127": lambda: found([32, 64, 96]),
}
