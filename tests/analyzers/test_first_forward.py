"""A setting that frees little is no remedy if the first forward pass keeps ever more activations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import fragmentation, peak
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.first_forward import growth_of_first_forward
from memdiag.analyzers.support.moments import look
from memdiag.trace.recording import ProcessMarks, RecordingEnd
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.analyzers.heaps import MIB


def failed(heap, *, kept=400, gap=15, earlier="forward", phase="forward", category="activation"):
    """Returns a training that ran out of memory: two segments hold tensors of ``kept`` MiB and gaps."""
    for number in range(2):
        at = 1000 * number
        heap.segment(at, (kept // 2 + gap) * MIB)
        heap.alloc(at, kept // 2 * MIB)
        heap.alloc(at + kept // 2, gap * MIB)
    for number in range(2):
        heap.free(1000 * number + kept // 2, gap * MIB)
    heap.oom((gap + 5) * MIB, device_free=MIB)
    trace = heap.trace(capacity_bytes=(kept + 2 * gap + 2) * MIB)
    (device,) = trace.devices
    number, (before, now) = len(device.events), (PHASES.index(name) for name in (earlier, phase))
    phases = np.array([before] * (number // 2) + [now] * (number - number // 2), np.int8)
    tensors = device.tensors.replace(
        category=np.full(len(device.tensors), CATEGORIES.index(category), np.int8),
        phase_alloc=np.full(len(device.tensors), PHASES.index("forward"), np.int8),
    )
    bases = {**trace.bases, "category": "marks", "phase": "marks"}
    devices = (replace(device, tensors=tensors, events=device.events.replace(phase=phases)),)
    return replace(trace, devices=devices, bases=bases)


@pytest.mark.parametrize(
    ("options", "is_growing"),
    [
        ({}, True),
        ({"gap": 40}, False),  # a good part of what the pass has kept
        ({"earlier": "backward"}, False),  # an earlier pass shows what is needed
        ({"phase": "optimizer"}, False),
        ({"category": "parameter"}, False),
    ],
)
def test_free_memory_that_the_first_forward_would_have_filled(options, is_growing, heap):
    trace = failed(heap, **options)
    codes = {each.code for each in fragmentation.analyze(trace, Context())}
    assert ("MD206" in codes, "MD201" in codes) == (is_growing, not is_growing)
    (view,) = Context().views(trace)
    growth = growth_of_first_forward(look(view, AllocatorSettings.of(trace)))
    assert (growth is not None) == is_growing
    if growth is not None:
        assert "more and more activations were kept, 400.00 MiB so far" in growth.title


@pytest.mark.parametrize(
    ("options", "is_needless", "first"),
    [
        ({}, True, "remedies.no-graph"),
        ({}, False, "remedies.batch"),
    ],
)
def test_a_graph_without_an_optimizer_is_probably_needless(options, is_needless, first, heap):
    trace = failed(heap, **options)
    marks = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", has_needless_graph=is_needless))
    trace = replace(trace, recorded=marks)
    found = {each.code: each for each in (*fragmentation.analyze(trace, Context()), *peak.analyze(trace, Context()))}
    assert found["MD206"].fixes[0].title.key == first
    assert (found["MD101"].fixes[0].title.key == first) == is_needless
    caveats = [str(fix.caveat) for fix in found["MD206"].fixes if fix.title.key == "remedies.no-graph"]
    assert all("later backward pass" in caveat for caveat in caveats)


def test_a_graph_is_not_needless_once_a_backward_has_run(heap):
    trace = failed(heap, earlier="backward")
    marks = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", has_needless_graph=True))
    found = fragmentation.analyze(replace(trace, recorded=marks), Context())
    assert "remedies.no-graph" not in {fix.title.key for each in found for fix in each.fixes}


def test_the_graph_of_an_evaluation_is_needless_after_a_backward(heap):
    trace = failed(heap, earlier="backward")
    marks = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", is_evaluation=True))
    found = {each.code: each for each in peak.analyze(replace(trace, recorded=marks), Context())}
    assert found["MD101"].fixes[0].title.key == "remedies.no-graph"
