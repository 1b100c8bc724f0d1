from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import lifetimes
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.schema import CATEGORIES
from tests.analyzers.page_examples import read_example
from tests.training import BACKWARD, BATCH, MIB, MOVE, SILENT, ZERO_GRAD, Training, forward

FORWARD = forward


def trained(steps=4, size=16 * MIB, **options):
    program = Training(size=size)
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program


def findings(trace, **options):
    return {finding.code: finding for finding in lifetimes.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


class KeepsLogits(Training):
    """A training that frees the logits of a step only after it has allocated the next ones."""

    logits = -1

    def _forward(self, size):
        activations = super()._forward(size)
        logits = self.alloc(64 * MIB, FORWARD(9), "activation")
        self.peak = self.alloc(128 * MIB, FORWARD(9), "temporary")
        self.free(self.peak)
        if self.logits >= 0:
            self.free(self.logits)
        self.logits = logits
        return activations


def test_outputs_of_the_last_step_that_are_still_there_at_the_peak():
    program = KeepsLogits(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step()
    found = findings(program.trace())
    assert set(found) == {"MD111"}
    finding = found["MD111"]
    assert finding.severity == "warning"
    assert number(finding, "tensors of the previous step") == 64 * MIB
    assert finding.evidence[-1].where == "model.py:19 forward"
    assert finding.fixes[0].change == "del logits, loss, batch"


def test_a_scalar_loss_that_is_kept_is_nothing_to_speak_of():
    assert findings(trained().trace()) == {}


def test_what_piles_up_is_left_to_the_analyzer_of_leaks():
    assert "MD111" not in findings(trained(leak=64 * MIB).trace())


class PeaksInForward(Training):
    """A training whose peak is in the forward."""

    def _forward(self, size):
        activations = super()._forward(size)
        self.passing(512 * MIB, FORWARD(9))
        return activations


def test_gradients_that_stay_through_the_forward():
    program = PeaksInForward(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step(zero_first=True)
    finding = findings(program.trace())["MD112"]
    assert number(finding, "gradients of the previous step") == 16 * MIB * (1 + 2 + 3)
    assert number(finding, "number of tensors from the previous step") == 3
    assert "zero_grad(set_to_none=True)" in finding.fixes[0].change


class GradInVariable(PeaksInForward):
    """A training that computes a second gradient, and assigns it to the variable that holds that of the last step."""

    def __init__(self, frees):
        super().__init__(size=16 * MIB)
        self.frees, self.result = frees, -1

    def _backward(self, activations, size):
        super()._backward(activations, size)
        result = self.alloc(96 * MIB, SILENT, "gradient")
        self.phase = "outside"
        self.passing(512, BATCH)
        if self.result >= 0:
            self.free(self.result, self.frees)
        self.result = result


@pytest.mark.parametrize(("frees", "code"), [(BATCH, "MD111"), (ZERO_GRAD, "MD112")])
def test_del_frees_gradients_that_a_variable_holds(frees, code):
    program = GradInVariable(frees)
    program.initialise()
    for _ in range(4):
        program.step()
    trace = program.trace()
    (device,) = trace.devices
    tensors = device.tensors
    of_optimizer = (tensors.category == CATEGORIES.index("gradient")) & (tensors.requested_bytes < 96 * MIB)
    named = tensors.replace(name=np.where(of_optimizer, 0, -1).astype(np.int32))
    trace = replace(trace, strings=("grad of weight",), devices=(replace(device, tensors=named),))
    finding = findings(trace)[code]
    assert number(finding, "of the previous step") == 96 * MIB
    assert set(findings(trace)) == {code}
    assert finding.fixes[0].change.startswith("del gradients" if code == "MD111" else "optimizer.step()")


def test_the_line_that_calls_backward_is_named():
    program = PeaksInForward(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step(zero_first=True)
    calls = {"backward": {"train.py:3 warm_up": 1, "train.py:9 train": 3}}
    finding = findings(replace(program.trace(), recorded=ProcessMarks((), {}, {}, {}, {}, calls=calls)))["MD112"]
    assert "of gradients from backward() at train.py:9 train are still live" in finding.title
    assert next(row for row in finding.evidence if "calls backward()" in row.what).value == "train.py:9 train"


class Accumulates(Training):
    """A training that accumulates gradients and never clears them.

    Each backward allocates new gradients, adds them to the retained ones and frees them. It frees activations layer by
    layer.
    """

    def _backward(self, activations, _size):
        self.phase = "backward"
        seed = self.alloc(4, BACKWARD, "temporary")
        self.free(activations.pop())
        for layer in reversed(range(self.layers)):
            gradient = self.alloc(self.size * (1 + layer), SILENT, "gradient")
            if len(self.gradients) < self.layers:
                self.gradients.append(gradient)
            else:
                self.free(gradient)
            self.free(activations[layer])
        self.free(seed)

    def _zero_grad(self):
        pass


@pytest.mark.parametrize(("layers", "scale", "is_told"), [(3, 4.0, True), (12, 0.01, False)])
def test_gradients_that_stay_count_as_far_as_the_step_would_need_less(layers, scale, is_told):
    program = Accumulates(layers, 64 * MIB)
    program.initialise()
    for _ in range(4):
        program.step(scale=scale)
    found = findings(program.trace())
    assert ("MD112" in found) == is_told
    if is_told:
        old = 64 * MIB * (1 + 2 + 3)
        assert number(found["MD112"], "gradients of the previous step") == old
        assert number(found["MD112"], "allocated peak without") == number(found["MD112"], "total live memory") - old


def test_gradients_that_go_with_their_step_are_fine():
    program = PeaksInForward(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step()
    assert "MD112" not in findings(program.trace())


def test_the_four_long_lived_kinds_are_told_apart():
    program = trained(zero_first=True)
    trace = program.trace()
    view = next(iter(Context().views(trace)))
    tensors = trace.devices[0].tensors
    kinds = lifetimes.kinds(view, np.arange(len(tensors)))
    held = {name: int(tensors.requested_bytes[rows].sum()) for name, rows in kinds.items()}
    size, layers = program.size, (1 + 2 + 3)
    assert held["optimizer"] == 2 * size * layers
    assert held["start"] == size * layers + 4 * size * layers  # parameters, and the gradients of four steps
    assert held["survives"] == 4 * size + 4 * 512  # batches and losses, also of the last step
    rows = np.concatenate(list(kinds.values()))
    assert len(rows) == len(np.unique(rows))


def test_memory_that_is_of_no_use_among_long_lived_tensors():
    # Small long-lived tensors, each alone in a segment, and a request that fits into none of these segments.
    program = Training(size=300 * MIB)
    program.entries.clear()
    program.phases.clear()
    move, main = MOVE, FORWARD(0)
    for at in range(12):
        program._log("segment_alloc", at << 32, 200 * MIB, move)
        program._log("alloc", at << 32, 200 * MIB, move)
        program._log("free_requested", at << 32, 200 * MIB, ())
        program._log("free_completed", at << 32, 200 * MIB, ())
        program._log("alloc", at << 32, 8 * MIB, move)
    program._log("segment_alloc", 99 << 32, 1000 * MIB, main)
    program._log("alloc", 99 << 32, 1000 * MIB, main)
    for backend in ("cuda", "npu"):
        finding = findings(program.trace(backend=backend))["MD113"]
        assert number(finding, "not usable") == 12 * 192 * MIB
        assert number(finding, "weights and gradients") == 12 * 8 * MIB
        assert "expandable_segments" in finding.fixes[0].change
        flags = [fix for fix in finding.fixes if fix.kind == "flag"]
        assert bool(flags) == (backend == "npu")
    assert "set_per_process_memory_fraction(0.94)" in flags[0].caveat
    assert "core_r0.9" in flags[0].applicability


def test_gradients_kept_through_a_real_forward(shared):
    trace = load(shared / "data/snapshots/kkaitlyn111__cs336-a2-systems__memory_2.7b_forward.pickle")
    finding = findings(trace)["MD112"]
    assert number(finding, "number of tensors from the previous step") == 435


def test_goldens_of_tidy_training_have_no_warning(golden):
    if golden.name.endswith("-train"):
        assert [f for f in lifetimes.analyze(load(golden / "snapshot.pickle"), Context()) if f.severity != "info"] == []


def _previous_step():
    program = KeepsLogits(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step()
    return lifetimes.analyze(program.trace(), Context())


def _old_gradients():
    program = PeaksInForward(size=16 * MIB)
    program.initialise()
    for _ in range(4):
        program.step(zero_first=True)
    return lifetimes.analyze(program.trace(), Context())


PAGE_EXAMPLES = {
    "MD111": _previous_step,
    "MD112": _old_gradients,
    "MD113": lambda: read_example(replay=False),
}


class KeepsGraph(Training):
    """A training whose backward frees no activations: the next step frees them, when its loss replaces the old one.

    With ``frees``, the program deletes its loss at the end of each step.
    """

    old: tuple[int, ...] = ()
    fails = frees = False

    def _forward(self, size):
        activations = super()._forward(size)
        self.passing(512 * MIB, FORWARD(9))
        if self.fails and self.now == 2:
            self.fail(size)
        for each in self.old:
            self.free(each)
        self.old = tuple(activations)
        return activations

    def _backward(self, activations, size):
        self.phase = "backward"
        seed = self.alloc(4, BACKWARD, "temporary")
        for layer in reversed(range(len(activations) - 1)):
            self.passing(size * 3, SILENT)
            self.gradients.append(self.alloc(self.size * (1 + layer), SILENT, "gradient"))
        self.free(seed)

    def _zero_grad(self):
        super()._zero_grad()
        if self.frees:
            for each in self.old:
                self.free(each)
            self.old = ()


@pytest.mark.parametrize("fails", [False, True])
def test_a_graph_that_backward_does_not_free(fails):
    peaks = {}
    for frees in (True, False):
        program = KeepsGraph(size=16 * MIB)
        program.fails, program.frees = fails, frees
        program.initialise()
        for _ in range(3 if fails else 4):
            program.step(until="forward" if fails and program.now == 1 else "")
        trace = program.trace()
        found, peaks[frees] = findings(trace), int(trace.devices[0].usage.allocated.max())
    finding = found["MD111"]
    assert finding.severity == ("critical" if fails else "warning")
    assert number(finding, "tensors of the previous step") == 7 * 16 * MIB
    assert [fix.title for fix in finding.fixes][1:] == ["Let backward() free the graph of the step"]
    assert number(finding, "allocated peak without") == peaks[True]
    assert finding.saving.expected_bytes == peaks[False] - peaks[True]


def test_outputs_alone_are_no_graph():
    program = KeepsLogits(size=32 * MIB)
    program.initialise()
    for _ in range(4):
        program.step()
    assert len(findings(program.trace())["MD111"].fixes) == 1
