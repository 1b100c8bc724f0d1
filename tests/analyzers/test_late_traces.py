"""If a trace begins with tensors and cached memory, all commands measure savings from the same initial state."""

from __future__ import annotations

from dataclasses import replace

from memdiag.allocator.subject import Subject
from memdiag.analyzers.support import what_if
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.runs.simulation import predict
from memdiag.runs.tuning import tune
from memdiag.sources import load

LINE = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_cache_from_before_the_trace_is_no_merit_of_other_settings(goldens):
    trace = load(goldens / "cuda-2.13.0-late" / "snapshot.pickle")
    subject = Subject.of(trace, trace.devices[0])
    recorded = int(trace.devices[0].usage.reserved.max())
    assert subject.comparable_peak is not None
    assert subject.comparable_peak < recorded
    told, _, _ = predict(subject, replace(subject.recorded, conf="expandable_segments:True"))
    assert told.saved_bytes == subject.comparable_peak - told.peak_reserved_bytes > 0

    replays = what_if._Replays.of(trace, trace.devices[0], AllocatorSettings.of(trace))
    (result,) = replays.results({LINE: ("MD201",)})
    assert result.saved_bytes == told.saved_bytes

    found = tune([subject], most=4, seconds=30)
    (tried,) = [each for each in found.front if each.conf == "expandable_segments:True"]
    assert tried.saved_bytes == told.saved_bytes
    assert found.baseline.saved_bytes == 0
