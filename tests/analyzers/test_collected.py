"""Outputs that a program collects are reported; graphs, caches and tensors that backward frees are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import collected
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.joined import join
from memdiag.trace.schema import PHASES
from tests.training import MAIN, MIB, Frame, Training, forward

EVALUATE = Frame("/app/train.py", 55, "evaluate")
CHECKPOINT = Frame("/lib/torch/utils/checkpoint.py", 480, "checkpoint")
OUTPUT = 64 * MIB


class Collecting(Training):
    """Runs two training steps, then forward passes whose outputs it keeps."""

    outputs: tuple[int, ...] = ()

    def passes(self, count, *, layers=1, window=0, checkpointed=False, in_backward=False, fails=False):
        """Runs forward passes.

        Each allocates temporaries and ``layers`` outputs. ``window``: number of outputs kept, the others are freed;
        0 keeps all. ``in_backward``: a backward pass frees them. ``fails``: memory runs out in the last pass.
        """
        kept = []
        for number in range(count):
            self.phase = "forward"
            for _ in range(2 * layers):
                self.passing(2 * OUTPUT, self._called(0, checkpointed))
            if fails and number == count - 1:
                self.fail(2 * OUTPUT, self._called(0))
                break
            kept += [self.alloc(OUTPUT, self._called(1 + layer, checkpointed), "unknown") for layer in range(layers)]
            self.phase = "outside"
            self.passing(512, (EVALUATE, MAIN))
            if window and len(kept) > window:
                self.free(kept.pop(0))
        self.highest = self.top
        if in_backward:
            self.phase = "backward"
            for each in kept:
                self.free(each)
            kept = []
        self.phase = "outside"
        for each in kept:
            self.free(each)

    @staticmethod
    def _called(layer, checkpointed=False):
        return (*forward(layer)[:-1], *((CHECKPOINT,) if checkpointed else ()), EVALUATE, MAIN)


def program_of(count=12, *, steps=2, **options):
    program = Collecting(size=8 * MIB)
    program.initialise()
    for _ in range(steps):
        program.step()
    program.passes(count, **options)
    return program


def marked(program):
    """Returns the trace with the phases that a recorder marks."""
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([PHASES.index(name) for name in program.phases], np.int8)
    at = device.tensors.alloc_at
    freed = np.minimum(device.tensors.free_requested_at, len(phase) - 1)
    tensors = device.tensors.replace(phase_alloc=phase[np.maximum(at, 0)], phase_free=phase[freed])
    bases = {**trace.bases, "phase": "marks"}
    device = replace(device, events=device.events.replace(phase=phase), tensors=tensors)
    return replace(trace, bases=bases, devices=(device,))


def found(count=12, **options):
    return list(collected.analyze(marked(program_of(count, **options)), Context()))


@pytest.mark.parametrize("steps", [0, 2])
def test_outputs_are_reported_with_the_peak_without_them(steps):
    (finding,) = found(steps=steps)
    assert finding.severity == "warning"
    assert finding.title.startswith("Outputs of 11 forward passes from train.py:55 evaluate stay on the device: 704.00")
    assert finding.fixes[0].change == "outputs.append(output.detach().cpu())"
    peaks = [int(marked(program_of(steps=steps, window=window)).devices[0].usage.allocated.max()) for window in (0, 1)]
    assert finding.saving.expected_bytes == peaks[0] - peaks[1]


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (5, {}),  # a few passes
        (12, {"window": 6}),  # the latest ones only
        (12, {"checkpointed": True}),  # kept for backward
        (12, {"in_backward": True}),
    ],
)
def test_what_is_no_collection(count, options):
    assert not found(count, **options)


def test_after_a_failure_outputs_come_first_and_a_smaller_batch_nowhere():
    trace = marked(program_of(fails=True))
    card = build_report(trace).verdict
    assert (card.severity, card.code) == ("critical", "MD135")
    (message,) = join(None, trace).messages
    assert message.findings[0].code == "MD135"
    assert not [fix.title for finding in message.findings for fix in finding.fixes if "smaller batch" in fix.title]


PAGE_EXAMPLES = {"MD135": lambda: found(fails=True)}
