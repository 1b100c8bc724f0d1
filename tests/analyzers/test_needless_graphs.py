"""A graph that no backward uses is reported if the recorder knows that autograd keeps it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import needless_graphs
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.context import Context
from memdiag.trace.recording import ProcessMarks, RecordingEnd
from memdiag.trace.schema import PHASES
from tests.training import MIB, Training, forward

LAYERS = 24
LAYER = 64 * MIB


def inference(*, graph=True, fails=False, backward=False):
    """Returns one forward pass, which keeps the output of each layer, or only that of the layer before."""
    program, kept = Training(size=MIB), []
    program.initialise()
    program.phase = "forward"
    for layer in range(LAYERS):
        kept.append(program.alloc(LAYER, forward(layer % 3), "activation"))
        if not graph and layer:
            program.free(kept[layer - 1])
    if fails:
        program.fail(1 << 41, forward(0))
    program.phase = "backward" if backward else "outside"
    for each in kept if graph else kept[-1:]:
        program.free(each)
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([PHASES.index(name) for name in program.phases], np.int8)
    device = replace(device, events=device.events.replace(phase=phase))
    return replace(trace, bases={**trace.bases, "phase": "marks"}, devices=(device,))


def found(ended=None, **options):
    ended = RecordingEnd(reason="exit", num_graphs=1) if ended is None else ended
    trace = replace(inference(**options), recorded=ProcessMarks((), {}, {}, {}, {}, ended=ended))
    return list(needless_graphs.analyze(trace, Context()))


def test_the_saving_is_that_of_a_pass_without_graph():
    (finding,) = found()
    assert finding.severity == "warning"
    assert finding.title.startswith("No backward pass follows, but autograd keeps its graph: 1.25 GiB")
    assert finding.fixes[0].title.key == "remedies.no-graph"
    peaks = [int(inference(graph=graph).devices[0].usage.allocated.max()) for graph in (True, False)]
    spare = (needless_graphs.IN_USE - 1) * LAYER  # operators may still read them
    assert finding.saving.expected_bytes == pytest.approx(peaks[0] - peaks[1] - spare, abs=LAYER)


@pytest.mark.parametrize(
    ("ended", "options"),
    [
        (RecordingEnd(reason="exit"), {}),  # under no_grad, or unknown
        (RecordingEnd(reason="exit", num_graphs=1, error="ValueError"), {}),  # backward might have followed
        (RecordingEnd(reason="signal", num_graphs=1), {}),
        (RecordingEnd(reason="exit", num_graphs=1, is_windowed=True), {}),
        (RecordingEnd(reason="exit", num_graphs=1), {"backward": True}),
        (RecordingEnd(reason="exit", num_graphs=1), {"graph": False}),
        (RecordingEnd(reason="oom", num_graphs=1), {"fails": True}),  # a training: an optimizer exists
    ],
)
def test_what_may_be_needed_is_not_reported(ended, options):
    assert not found(ended, **options)


def test_a_failure_without_an_optimizer_is_critical():
    (finding,) = found(RecordingEnd(reason="oom", num_graphs=1, has_needless_graph=True), fails=True)
    assert finding.severity == "critical"
    assert finding.title.startswith("No optimizer exists, but autograd keeps a graph for backward")


def test_an_evaluation_in_a_training_is_critical_after_a_failure():
    (finding,) = found(RecordingEnd(reason="oom", is_evaluation=True), fails=True)
    assert finding.title.startswith(
        "The model is in evaluation mode, but autograd keeps a graph for backward: 1.25 GiB"
    )
    assert (finding.severity, finding.fixes[0].title.key) == ("critical", "remedies.no-graph")
    assert not found(RecordingEnd(reason="exit", is_evaluation=True), backward=True)


def test_the_card_begins_with_it():
    columns = {
        name: np.zeros(0, np.int64) for name in ("kind", "value", "time_ns", "allocs", "frees", "device", "thread")
    }
    marks = ProcessMarks((), columns, {}, {}, {}, ended=RecordingEnd(reason="exit", num_graphs=1))
    assert build_report(replace(inference(), recorded=marks)).verdict.code == "MD137"


PAGE_EXAMPLES = {"MD137": found}
