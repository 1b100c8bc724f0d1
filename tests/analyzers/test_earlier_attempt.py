"""memdiag reports tensors of a failed attempt only if they are still live when the next attempt fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import earlier_attempt
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.analyzers.heaps import MIB, Heap


class Attempts:
    """Two attempts that run out of memory, with the phase of each event and the category and name of each tensor."""

    def __init__(self, heap):
        self.heap, self.phases, self.tensors = heap, [], []
        self.add("outside", heap.segment, 0, 4000 * MIB)

    def add(self, phase, write, *args, **options):
        write(*args, **options)
        self.phases += [phase] * (len(self.heap.entries) - len(self.phases))

    def alloc(self, phase, at, size, category, name):
        self.add(phase, self.heap.alloc, at, size * MIB, where="train.py:5 run")
        self.tensors.append((CATEGORIES.index(category), name))

    def trace(self):
        trace = self.heap.trace()
        (device,) = trace.devices
        names = sorted({name for _, name in self.tensors})
        tensors = device.tensors.replace(
            category=np.array([category for category, _ in self.tensors], np.int8),
            name=np.array([names.index(name) for _, name in self.tensors], np.int32),
        )
        events = device.events.replace(phase=np.array([PHASES.index(phase) for phase in self.phases], np.int8))
        return replace(trace, strings=tuple(names), devices=(replace(device, tensors=tensors, events=events),))


def after_an_exception(heap, *, is_kept=True, after="outside", category="activation"):
    """Returns two attempts: the first fails with three layers of activations, the second with an input batch."""
    program = Attempts(heap)
    for layer in range(3):
        program.alloc("forward", 100 * layer, 100, category, f"layers.{layer}")
    program.add("forward", heap.oom, 500 * MIB)
    if not is_kept:
        for layer in range(3):
            program.add("forward", heap.free, 100 * layer, 100 * MIB)
    program.alloc(after, 1000, 50, "input", "input of Model")
    program.add("forward", heap.oom, 500 * MIB)
    return program.trace()


def found(trace):
    return list(earlier_attempt.analyze(trace, Context()))


@pytest.mark.parametrize(
    ("is_kept", "after", "category", "is_found"),
    [
        (True, "outside", "activation", True),
        (False, "outside", "activation", False),
        (True, "forward", "activation", False),  # PyTorch itself caught the error, and the same forward continued
        (True, "outside", "parameter", False),
    ],
)
def test_activations_that_the_exception_of_the_first_attempt_keeps(heap, is_kept, after, category, is_found):
    trace = after_an_exception(heap, is_kept=is_kept, after=after, category=category)
    assert [finding.evidence[0].value for finding in found(trace)] == [300 * MIB] * is_found


@pytest.mark.parametrize(("names", "is_found"), [("abc", True), ("aab", False), ("xyz", False)])
def test_a_model_that_is_created_again_beside_that_of_the_first_attempt(heap, names, is_found):
    program = Attempts(heap)
    for number, name in enumerate("abc"):
        program.alloc("initialisation", 100 * number, 100, "parameter", name)
    program.alloc("initialisation", 500, 300, "parameter", "not again")
    program.add("optimizer", heap.oom, 500 * MIB)
    for number, name in enumerate(names):
        program.alloc("initialisation", 1000 + 100 * number, 100, "parameter", name)
    assert not found(program.trace())  # no attempt fails beside it
    program.add("optimizer", heap.oom, 500 * MIB)
    trace = program.trace()
    assert [finding.evidence[0].value for finding in found(trace)] == [300 * MIB] * is_found
    if is_found:
        assert build_report(trace).verdict.code == "MD132"
        assert "torch.npu.empty_cache()" in found(replace(trace, backend="npu"))[0].fixes[0].change


PAGE_EXAMPLES = {
    "MD132": lambda: found(after_an_exception(Heap())),
}
