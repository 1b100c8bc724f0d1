"""memdiag tells gradients that no optimizer uses from those that only live long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import lifetimes, unused_gradients
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import CATEGORIES
from tests.training import MIB, MOVE, SILENT, Training

SIZE = 48 * MIB  # of a layer of the teacher; the trained layers have 4, 8 and 12 MiB


class HasTeacher(Training):
    """A training beside a model of two layers, whose gradients the first backward allocates, or each one."""

    is_each_new = False
    unused = ()

    def initialise(self):
        super().initialise()
        for _ in range(2):
            self.alloc(SIZE, MOVE, "parameter")

    def _backward(self, activations, size):
        super()._backward(activations, size)
        if self.is_each_new or not self.unused:
            for gradient in self.unused:
                self.free(gradient)
            self.unused = [self.alloc(SIZE, SILENT, "gradient") for _ in range(2)]
        self.passing(256 * MIB, SILENT)


class NewEachStep(HasTeacher):
    """``model.zero_grad()`` frees the gradients that no optimizer uses, too."""

    is_each_new = True


class ZeroedTogether(HasTeacher):
    """``model.zero_grad()`` frees all gradients after the optimizer's step."""

    def _backward(self, activations, size):
        self.unused = ()
        super()._backward(activations, size)

    def _zero_grad(self):
        for gradient in self.unused:
            self.free(gradient)
        super()._zero_grad()


class FreedEarly(ZeroedTogether):
    """The program frees the gradients that no optimizer uses before the optimizer's step."""

    def _optimize(self):
        for gradient in self.unused:
            self.free(gradient)
        self.unused = ()
        super()._optimize()


def trained(program, steps=5, **options):
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program.trace()


def named(trace, *, own="teacher.{}.weight", used=()):
    """Returns the trace of a recorder: the optimizer used the small gradients, and those of the parameters ``used``."""
    (device,) = trace.devices
    strings, tensors = [], device.tensors
    name = np.full(len(tensors), -1, np.int32)
    numbers = {}
    for row in range(len(tensors)):
        category, size = CATEGORIES[tensors.category[row]], int(tensors.requested_bytes[row])
        if category not in {"parameter", "gradient"}:
            continue
        numbers[row] = sum(1 for each in numbers if tensors.requested_bytes[each] == size)
        text = own.format(numbers[row] % 2) if size == SIZE else f"student.{size // MIB}.weight"
        if category == "parameter" or size != SIZE or text in used:
            strings.append("grad of " * (category == "gradient") + text)
            name[row] = len(strings) - 1
    return replace(trace, strings=tuple(strings), devices=(replace(device, tensors=tensors.replace(name=name)),))


def found(trace):
    return list(unused_gradients.analyze(trace, Context()))


def test_gradients_that_zero_grad_never_frees():
    trace = trained(HasTeacher())
    (finding,) = found(trace)
    assert finding.evidence[0].value == 2 * SIZE
    assert finding.fixes[0].change == "model.requires_grad_(False)  # the model without an optimizer"
    assert finding.saving.low_bytes == finding.saving.expected_bytes == 2 * SIZE < finding.saving.high_bytes
    assert "MD112" not in {each.code for each in lifetimes.analyze(trace, Context())}
    assert build_report(trace).verdict.code == "MD133"


@pytest.mark.parametrize(("steps", "is_found"), [(4, True), (3, False)])
def test_some_steps_have_to_free_other_gradients(steps, is_found):
    assert bool(found(trained(HasTeacher(), steps))) == is_found


def test_without_zero_grad_all_gradients_accumulate():
    class Accumulates(HasTeacher):
        def _zero_grad(self):
            self.gradients = []

    assert not found(trained(Accumulates()))


@pytest.mark.parametrize("program", [HasTeacher, NewEachStep, ZeroedTogether])
def test_gradients_that_a_recorder_saw_at_no_step_of_an_optimizer(program):
    (finding,) = found(named(trained(program())))
    assert finding.evidence[0].value == 2 * SIZE
    assert finding.evidence[-1].where == "teacher.*.weight"
    assert finding.fixes[0].change == "model.teacher.requires_grad_(False)"


def test_gradients_that_are_freed_before_the_step_of_the_optimizer():
    assert not found(named(trained(FreedEarly())))


@pytest.mark.parametrize(
    ("own", "change"),
    [
        ("weight{}", "model.requires_grad_(False)  # the model without an optimizer"),
        ("blocks.{}.weight", "model.blocks.requires_grad_(False)"),
        ('a")+f("b.{}.weight', "model.requires_grad_(False)  # the model without an optimizer"),
        ("net.blocks.7.{}.weight", 'model.get_submodule("net.blocks.7").requires_grad_(False)'),
    ],
)
def test_the_line_names_the_part_of_the_model(own, change):
    (finding,) = found(named(trained(HasTeacher()), own=own))
    assert finding.fixes[0].change == change


def test_a_second_gradient_of_parameters_that_an_optimizer_updates():
    trace = named(trained(NewEachStep()), used=("teacher.0.weight", "teacher.1.weight"))
    (device,) = trace.devices
    name = device.tensors.name.copy()
    gradients = np.flatnonzero(
        (device.tensors.category == CATEGORIES.index("gradient")) & (device.tensors.requested_bytes == SIZE)
    )
    name[gradients[2:]] = -1  # no optimizer uses those of later steps
    trace = replace(trace, devices=(replace(device, tensors=device.tensors.replace(name=name)),))
    assert not found(trace)


@pytest.mark.parametrize(("scale", "is_found"), [(1, False), (1e-3, True)])
def test_an_optimizer_of_copies_of_the_parameters(scale, is_found):
    """The optimizer updates tensors of no module: copies of the parameters, or the image of a style transfer."""

    class HasCopies(HasTeacher):
        def _optimize(self):
            super()._optimize()
            self.passing(int(SIZE * scale), SILENT)

    trace = named(trained(HasCopies()))
    (device,) = trace.devices
    tensors, name = device.tensors, device.tensors.name.copy()
    is_own = (tensors.requested_bytes == int(SIZE * scale)) & (tensors.category != CATEGORIES.index("gradient"))
    name[is_own] = len(trace.strings)
    strings = (*trace.strings, "grad of parameter 0 of AdamW")
    trace = replace(trace, strings=strings, devices=(replace(device, tensors=tensors.replace(name=name)),))
    assert bool(found(trace)) == is_found


PAGE_EXAMPLES = {"MD133": lambda: found(named(trained(HasTeacher())))}
