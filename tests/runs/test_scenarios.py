"""``memdiag.runs.scenarios`` reads requests to simulate, and ``simulated_runs`` carries them out."""

from __future__ import annotations

from pathlib import Path

import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.runs.scenarios import SimulationRequest
from memdiag.runs.simulated_runs import simulate_runs, subject_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"


def test_a_request_is_simulated_from_python():
    trace = memdiag.load(EXAMPLE)
    (device,) = trace.devices
    request = SimulationRequest.read(["caching"], ["", "max_split_size_mb:64"], None, "64GiB", None)
    request.check(trace, device)
    subject = subject_of(trace, device)
    scenarios = request.scenarios(subject)
    assert [(each.policy, each.conf, each.capacity_bytes) for each in scenarios] == [
        ("caching", "", 64 << 30),
        ("caching", "max_split_size_mb:64", 64 << 30),
    ]
    found = simulate_runs(subject, scenarios)
    for run, saved in zip(found.runs, found.saved_bytes, strict=True):
        assert run.peak_bytes == run.reserved.max() >= run.allocated.max()
        assert saved == device.usage.reserved.max() - run.peak_bytes


def test_without_policies_the_plain_and_the_expandable_allocator_are_compared():
    trace = memdiag.load(EXAMPLE)
    empty = SimulationRequest.read([], None, None, None, None)
    assert empty.or_usual(trace).policies == ("caching", "expandable")
    named = SimulationRequest.read(["bound"], None, None, None, None)
    assert named.or_usual(trace) is named


def test_an_unknown_policy_is_refused():
    with pytest.raises(MemdiagError, match="there is no such policy"):
        SimulationRequest.read(["cachin"], None, None, None, None)
