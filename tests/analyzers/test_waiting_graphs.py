"""Graphs that wait for one backward pass are reported with the saving of a backward for each pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import waiting_graphs
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.training import BACKWARD, LOSS, MAIN, MIB, SILENT, Frame, Training, forward

LOOP = Frame("/app/train.py", 40, "epoch")


class Accumulating(Training):
    """Runs micro-batches, with one backward pass for all of them, or one for each."""

    def micro_batches(self, count, *, each=False):
        self.now, graphs = self.now + 1, []
        for number in range(count):
            self.phase = "forward"
            graphs.append([self.alloc(2 * self.size, self._called(layer), "activation") for layer in range(3)])
            self.phase = "outside"
            self.passing(512, (*LOSS[:1], LOOP, MAIN))
            if each or number == count - 1:
                self._use(graphs)
                graphs = []
        self._optimize()
        self.phase = "outside"
        self._zero_grad()

    def _use(self, graphs):
        self.phase = "backward"
        self.passing(4, BACKWARD)
        for graph in reversed(graphs):
            for layer, addr in reversed(list(enumerate(graph))):
                if len(self.gradients) < 3:
                    self.gradients.append(self.alloc(self.size * (1 + layer), SILENT, "gradient"))
                self.free(addr)
        self.phase = "outside"

    @staticmethod
    def _called(layer):
        return (*forward(layer)[:-1], LOOP, MAIN)


def marked(count, *, each=False):
    """Returns the trace of a training with the phases and categories of a recorder."""
    program = Accumulating(size=32 * MIB)
    program.initialise()
    for _ in range(3):
        program.micro_batches(count, each=each)
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([PHASES.index(name) for name in program.phases], np.int8)
    freed = np.minimum(device.tensors.free_requested_at, len(phase) - 1)
    tensors = device.tensors.replace(
        category=np.array([CATEGORIES.index(name) for name, _, _ in program.truth], np.int8),
        step_alloc=np.array([step for _, _, step in program.truth], np.int32),
        phase_free=phase[freed],
    )
    step = np.full(len(phase), -1, np.int32)
    step[np.maximum(tensors.alloc_at, 0)] = tensors.step_alloc
    events = device.events.replace(phase=phase, step=np.maximum.accumulate(step))
    device = replace(device, events=events, tensors=tensors)
    return replace(trace, bases={**trace.bases, "phase": "marks"}, devices=(device,))


def found(count, **options):
    return list(waiting_graphs.analyze(marked(count, **options), Context()))


def test_the_saving_is_that_of_a_backward_for_each_pass():
    (finding,) = found(8)
    assert finding.severity == "warning"
    assert finding.title.startswith("8 autograd graphs wait for one backward pass: 1.50 GiB")
    peaks = [int(marked(8, each=each).devices[0].usage.allocated.max()) for each in (False, True)]
    assert finding.saving.expected_bytes == pytest.approx(peaks[0] - peaks[1], rel=0.1)


@pytest.mark.parametrize(("count", "each"), [(8, True), (2, False)])
def test_what_is_no_accumulation(count, each):
    assert not found(count, each=each)


def test_the_card_begins_with_it():
    assert build_report(marked(8)).verdict.code == "MD136"


PAGE_EXAMPLES = {"MD136": lambda: found(8)}
