"""MindSpeed's allocator, written independently in C++ from its description, agrees with memdiag's simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.scenario import Scenario
from memdiag.errors import MemdiagError
from tests.allocator.policies.lifecycle.mindspeed.plugged import (
    MALLOC,
    NOT_AT_ALL,
    Calls,
    Run,
    compare,
    compiled,
    run_alone,
    run_on_npu,
)
from tests.allocator.policies.lifecycle.mindspeed.random_programs import Program, program
from tests.pythons import NO_NPU, npu_command

PYTHON = npu_command()
NUM_CALLS = 400


def _compiled(folder: Path, *, alone: bool) -> Path:
    try:
        return compiled(folder, alone=alone)
    except MemdiagError as error:
        pytest.skip(f"the allocator in C++ cannot be compiled here: {error}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compiled(tmp_path_factory.mktemp("alone"), alone=True)


def _simulated(chosen: Program) -> LifecycleReplay:
    return replay_lifecycle(
        chosen.workload,
        chosen.marks,
        Scenario("lifecycle", chosen.conf, "", chosen.total, chosen.fraction),
        alr_max_bytes=chosen.alr_max,
    )


def _run(chosen: Program) -> Run:
    return Run(Calls.of(chosen.workload, chosen.marks, chosen.fraction), chosen.total, chosen.conf, chosen.alr_max)


def test_random_programs_go_alike(alone: Path, tmp_path: Path) -> None:
    levels = set()
    for seed in range(60):
        chosen = program(seed, NUM_CALLS)
        run = _run(chosen)
        log = run_alone(alone, run, tmp_path)
        found = compare(_simulated(chosen), run.calls, log)
        assert not found.differences, f"seed {seed}: {found.differences}"
        levels |= set(log["level"][log["call"] == MALLOC].tolist())
    assert levels == set(range(1, NOT_AT_ALL + 1))  # each occurs


@pytest.mark.skipif(not PYTHON, reason=NO_NPU)
def test_plugged_into_torch_npu_they_go_alike(tmp_path: Path) -> None:
    library = _compiled(tmp_path, alone=False)
    programs = [(seed, chosen) for seed in range(30) if (chosen := program(seed, NUM_CALLS)).total == 1 << 30]
    runs = [_run(chosen) for _, chosen in programs]
    for (seed, chosen), run, log in zip(programs, runs, run_on_npu(PYTHON, library, runs, tmp_path), strict=True):
        found = compare(_simulated(chosen), run.calls, log)
        assert not found.differences, f"seed {seed}: {found.differences}"


def test_a_difference_is_seen(alone: Path, tmp_path: Path) -> None:
    chosen = program(0, NUM_CALLS)
    run = Run(Calls.of(chosen.workload, chosen.marks), chosen.total, "default_lc_threshold:1e9")
    assert compare(_simulated(chosen), run.calls, run_alone(alone, run, tmp_path)).differences
