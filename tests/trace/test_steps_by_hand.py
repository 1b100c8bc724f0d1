"""A loop that updates its weights without an optimizer has a step for each forward after a backward."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.trace.recorded import PHASE, STEP, phases_of
from memdiag.trace.recording import Optimizer, ProcessMarks, RecordingEnd
from memdiag.trace.schema import PHASES
from tests.training import MAIN, MIB, Training

LOOP = ("forward", "outside", "backward", "outside")  # the loss and the update are outside


def steps(marks, *, ended=None):
    """Returns the step of one allocation after each mark: the name of a phase, or "step" for an optimizer."""
    program = Training()
    for _ in marks:
        program.passing(MIB, (MAIN,))
    (device,) = program.trace().devices
    at = np.flatnonzero(device.events.action == device.events.action[1])
    columns = {name: np.full(len(marks), -1, np.int64) for name in ("allocs", "frees", "device")}
    columns |= {
        "kind": np.array([STEP if mark == "step" else PHASE for mark in marks]),
        "value": np.array([1 if mark == "step" else PHASES.index(mark) for mark in marks]),
        "time_ns": device.events.time_us[at] * 1000 - 5000,
        "thread": np.zeros(len(marks), np.int64),
    }
    recorded = ProcessMarks((), columns, {}, {}, {}, ended=ended or RecordingEnd(reason="exit"))
    return phases_of(recorded, device).step[at].tolist()


def test_the_update_belongs_to_the_step_before_the_next_forward():
    assert steps(LOOP * 3) == [0] * 4 + [1] * 4 + [2] * 4


def test_several_passes_before_a_backward_are_one_step():
    assert steps(("forward", "outside", "forward", "backward", "backward", "outside", "forward")) == [0] * 6 + [1]


@pytest.mark.parametrize(
    ("marks", "ended"),
    [
        (LOOP * 2, RecordingEnd(reason="oom", optimizers=(Optimizer("Adam", 1, 0, frozenset()),))),  # accumulates
        ((*LOOP, "forward", "backward", "optimizer"), None),
    ],
)
def test_a_training_with_an_optimizer_has_no_such_steps(marks, ended):
    assert set(steps(marks, ended=ended)) == {0}


def test_steps_of_an_optimizer_count():
    assert steps((*LOOP, "forward", "backward", "step", "forward")) == [0] * 6 + [1] * 2
