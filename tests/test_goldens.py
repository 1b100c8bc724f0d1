"""Recordings of the real allocators agree with the allocators' own statistics (truth.json in each folder)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from memdiag.analyzers.report import build_report
from memdiag.sources import load

CURVES = ("reserved", "allocated", "active")
# truth.json has the values at the start of the recording. These files begin later, so they lack these values.
START_IS_LATER = {
    "cuda-2.13.0-ring-mid-malloc": "the ring of entries wrapped within a malloc",
    "cuda-2.13.0-state-only": "a history of one entry (mode state) says nothing of the time before",
}
ONE_ENTRY = {"cuda-2.13.0-state-only"}  # a file with one entry also lacks the peaks
# A trace records releases by garbage collection like those of a retry; after this one, no fact distinguishes them.
RETRIES_ARE_COLLECTIONS = {"cuda-2.13.0-gc-threshold"}


def truth_of(golden):
    truth = json.loads((golden / "truth.json").read_text())
    if golden.name.startswith("cpu-"):
        pytest.skip("PyTorch's CPU allocator counts nothing itself: see test_recorded_goldens.py")
    return truth


def test_bytes_are_those_that_the_allocator_counted(golden):
    trace = load(golden / "snapshot.pickle")
    truth = {device["device"]: device for device in truth_of(golden)["devices"]}
    assert {device.device for device in trace.devices} == set(truth)
    for device in trace.devices:
        for name in CURVES:
            counted = truth[device.device]
            highest = max(int(np.max(device.usage[name], initial=-1)), device.start[name])
            assert device.end[name] == counted["end"][name]
            if counted.get("peak") and golden.name not in ONE_ENTRY:
                assert highest == counted["peak"][name]
            if counted.get("start") and golden.name not in START_IS_LATER:
                assert device.start[name] == counted["start"][name]


def test_requested_bytes_are_those_of_live_tensors(golden):
    """Requested bytes differ from torch's number only by pending bytes.

    torch counts a tensor until its block is free; memdiag counts it until the program frees it.
    """
    trace = load(golden / "snapshot.pickle")
    truth = {device["device"]: device for device in truth_of(golden)["devices"]}
    for device in trace.devices:
        tensors, n = device.tensors, device.num_events
        pending = (tensors.free_requested_at < n) & (tensors.free_completed_at >= n) & (tensors.group >= 0)
        waiting = int(tensors.requested_bytes[pending].sum())
        assert device.end["requested"] + waiting == truth[device.device]["end"]["requested"]


def test_nothing_contradicts_itself(golden):
    trace = load(golden / "snapshot.pickle")
    for device in trace.devices:
        assert not device.anomalies
        assert device.usage_at(device.num_events - 1) == device.end


def test_failures_and_retries_are_counted(golden):
    report = build_report(load(golden / "snapshot.pickle"))
    for device, counted in zip(report.devices, truth_of(golden)["devices"], strict=True):
        if device.counts["num_ooms"] is None:
            continue
        assert device.counts["num_ooms"] == counted["num_ooms"]
        if golden.name not in RETRIES_ARE_COLLECTIONS and golden.name not in ONE_ENTRY:
            assert device.counts["num_retries"] == counted["num_alloc_retries"]


@pytest.mark.parametrize("name", sorted({*START_IS_LATER, *ONE_ENTRY, *RETRIES_ARE_COLLECTIONS}))
def test_exceptions_are_of_goldens_that_exist(name, request):
    assert (request.config.rootpath / "tests" / "goldens" / name).is_dir()
