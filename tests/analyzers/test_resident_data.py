"""memdiag tells data that stays on the device from the model and from what a step needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import resident_data
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace.recording import Optimizer, ProcessMarks, RecordingEnd
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.stacks import Frame
from tests.training import MIB, Training, forward

DATA = 512 * MIB
LOAD = (Frame("/app/train.py", 15, "load"), Frame("/app/train.py", 88, "main"))
COPY = (Frame("/env/lib/python3.11/copy.py", 150, "deepcopy"), *LOAD)
BY_MODULE = (Frame("/env/lib/python3.11/site-packages/torch/nn/init.py", 50, "zeros_"), *LOAD)

ADAMW = Optimizer("AdamW", 24 * MIB, 0, frozenset())
WITH_OPTIMIZER = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", optimizers=(ADAMW,)))
BY_OPTIMIZER = (Frame("/env/lib/python3.11/site-packages/torch/optim/adagrad.py", 90, "__init__"), *LOAD)


def trained(frames=LOAD, steps=3, *, is_freed=False, size=DATA, backend="cuda", fails=False):
    program = Training()
    program.initialise()
    data = program.alloc(size, frames, "unknown")
    for _ in range(steps):
        program.step()
    if is_freed:
        program.free(data)
        program.step()
    if fails:
        program.fail(256 * MIB, forward(1))
    return program.trace(backend=backend)


def recorded(trace, program):
    """Returns the trace of a recorder, which knows all categories."""
    (device,) = trace.devices
    kinds = [CATEGORIES.index(name) for name, _, _ in program.truth]
    tensors = device.tensors.replace(category=np.array(kinds, np.int8))
    return replace(trace, bases={**trace.bases, "phase": "marks"}, devices=(replace(device, tensors=tensors),))


def found(trace):
    return list(resident_data.analyze(trace, Context()))


def test_a_data_set_is_information_with_the_saving():
    (finding,) = found(trained())
    assert (finding.severity, finding.evidence[0].value) == ("info", DATA)
    assert "512.00 MiB from train.py:15 load stays on the device" in finding.title
    assert finding.saving.expected_bytes == DATA
    assert finding.fixes[0].change == 'batch = data[i:j].pin_memory().to("cuda", non_blocking=True)'


@pytest.mark.parametrize(
    "options",
    [
        {"frames": COPY},
        {"frames": BY_MODULE},
        {"frames": BY_OPTIMIZER},
        {"frames": ()},
        {"steps": 1},
        {"is_freed": True},
        {"size": 32 * MIB},
        {"backend": "cpu"},
    ],
)
def test_what_is_no_data_that_stays(options):
    assert not found(trained(**options))


def test_after_a_failure_the_data_is_the_cause():
    trace = trained(fails=True, backend="npu")
    (finding,) = found(trace)
    assert finding.severity == "critical"
    assert '.to("npu"' in finding.fixes[0].change
    assert build_report(trace).verdict.code == "MD134"


@pytest.mark.parametrize(
    ("category", "size", "is_found"),
    [("unknown", 64, True), ("unknown", 63, False), ("input", 512, False)],  # the batch has 4 MiB
)
def test_a_failure_in_the_first_step_of_a_training(category, size, is_found):
    """The batch of the first step is live until the second step; data is many times larger than what the model gets."""
    program = Training()
    program.initialise()
    program.alloc(size * MIB, LOAD, category)
    program.step(until="forward")
    program.fail(256 * MIB, forward(1))
    trace = program.trace()
    assert not found(trace)  # without a recorder
    trace = recorded(trace, program)
    assert not found(trace)  # without an optimizer, as in inference
    assert bool(found(replace(trace, recorded=WITH_OPTIMIZER))) == is_found


@pytest.mark.parametrize(
    ("sizes", "is_found"),
    [
        ([40, 80, 120] * 3, False),  # states and an average for each parameter
        ([80, 160, 240], False),  # copies with 32 bits of parameters with 16
        ([40] * 4, True),  # more than one parameter has
        ([41, 81, 121], True),
    ],
)
def test_states_and_copies_of_parameters_that_the_program_keeps_itself(sizes, is_found):
    program = Training(size=40 * MIB)  # with parameters of 40, 80 and 120 MiB
    program.initialise()
    for size in sizes:
        program.alloc(size * MIB, LOAD, "unknown")
    for _ in range(3):
        program.step()
    assert bool(found(recorded(program.trace(), program))) == is_found


@pytest.mark.parametrize(("category", "severity"), [("unknown", "critical"), ("input", "warning")])
def test_a_model_that_gets_the_data_itself_may_need_all_of_it(category, severity):
    trace = trained(fails=True)
    (device,) = trace.devices
    categories = np.where(device.tensors.requested_bytes == DATA, CATEGORIES.index(category), device.tensors.category)
    tensors = device.tensors.replace(category=categories.astype(np.int8))
    (finding,) = found(replace(trace, devices=(replace(device, tensors=tensors),)))
    assert finding.severity == severity


PAGE_EXAMPLES = {"MD134": lambda: found(trained(fails=True))}
