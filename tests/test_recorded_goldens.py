"""Recordings of memdiag's recorder agree with the values that the program wrote itself (truth.json in each folder)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from memdiag.sources import load
from memdiag.trace import schema

RECORDED = ("cpu-2.13.0-recorded", "cuda-2.13.0-recorded", "npu-2.13.0-recorded")


@pytest.fixture(params=RECORDED)
def run(request, goldens):
    """The trace of a recorded run, and the values that the program wrote."""
    folder = goldens / request.param
    return load(folder / "snapshot.pickle"), json.loads((folder / "truth.json").read_text())


def events_between(device, begin, end):
    """Returns the events between two moments of the program: by allocated blocks if it counted them, else by time."""
    if begin["allocs"] >= 0:
        handed_out = np.cumsum(device.events.action == schema.ALLOC)
        given_back = np.cumsum(device.events.action == schema.FREE_REQUESTED)
        counts = [
            np.maximum(np.searchsorted(handed_out, m["allocs"]), np.searchsorted(given_back, m["frees"]))
            for m in (begin, end)
        ]
        return np.arange(counts[0] + 1, counts[1])
    clock = device.events.time_us * 1000
    return np.flatnonzero((clock > begin["time_ns"]) & (clock < end["time_ns"] - 1000))


def test_phases_and_steps_are_the_programs_own(run):
    trace, truth = run
    (device,) = trace.devices
    assert {trace.bases[name] for name in ("phase", "step", "category")} == {"marks"}
    compared = 0
    for begin, end in zip(truth["began"], truth["began"][1:], strict=False):
        if begin["phase"] == "outside":
            continue
        events = events_between(device, begin, end)
        asked = events[device.events.action[events] == schema.ALLOC]
        phases = {schema.PHASES[phase] for phase in np.unique(device.events.phase[asked])}
        assert phases <= {begin["phase"]}, (begin, phases)
        assert set(np.unique(device.events.step[asked]).tolist()) <= {begin["step"]}
        compared += len(asked)
    assert compared > 200


def test_parameters_gradients_and_states_have_their_names(run):
    trace, truth = run
    (device,) = trace.devices
    tensors, live = device.tensors, device.live(device.num_events - 1)
    at = {int(tensors.addr[row]): int(row) for row in live}
    assert len(truth["tensors"]) > 40
    for told in truth["tensors"]:
        row = at[told["addr"]]
        assert trace.strings[tensors.name[row]] == told["name"]
        assert schema.CATEGORIES[tensors.category[row]] == told["category"]
        assert tensors.requested_bytes[row] == told["bytes"]


def test_steps_are_all_there(run):
    trace, truth = run
    steps = trace.devices[0].events.step
    assert sorted(set(steps[steps >= 0].tolist())) == list(range(truth["steps"]))
