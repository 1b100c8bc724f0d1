"""The report on a replay shows misclassified tensors and their cost, pools, initial state and perfect prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator.policies.lifecycle.conf import NO_LIMIT, MindSpeedSettings
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.policies.lifecycle.report import Lifecycle
from memdiag.allocator.replay import replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import Start
from memdiag.errors import MemdiagError
from memdiag.render.simulate import json as simulate_json
from memdiag.render.simulate import terminal as simulate
from memdiag.runs.simulation import predict, report_of
from memdiag.sources.torch_snapshot import read
from tests.allocator.policies.lifecycle.lifecycle_program import Program, replayed
from tests.allocator.replay_check import check as checked

MIB = 1 << 20
GPT = Path(__file__).parents[4] / "examples" / "gpt-train.pickle"


def told(program: Program, *, is_oracle: bool = False) -> Lifecycle:
    lifecycle = replay_lifecycle(program.workload(), program.hooks, is_oracle=is_oracle).lifecycle
    assert lifecycle is not None
    return lifecycle


def first_forward() -> Program:
    """Returns a program whose first forward window frees one of two tensors; all count as long-lived there."""
    program = Program().mark("forward_begin", "forward_end", "forward_begin")
    return program.alloc(0, 30 * MIB).alloc(1, 50 * MIB).free(0).mark("forward_end").alloc(2, 5 * MIB)


def test_wrongly_long() -> None:
    wrong = told(first_forward()).false_long_lived()
    # the tensor is live at the peak, so it costs nothing
    assert (wrong.num_tensors, wrong.total_bytes, wrong.live_at_peak_bytes, wrong.cost_bytes) == (
        1,
        30 * MIB,
        30 * MIB,
        0,
    )
    in_use = told(first_forward().alloc(3, 60 * MIB))  # a request outside of forward borrowed its segment
    assert (in_use.peak_call, in_use.false_long_lived().live_at_peak_bytes, in_use.false_long_lived().cost_bytes) == (
        4,
        0,
        0,
    )
    idle = told(first_forward().free(2).alloc(3, 60 * MIB))
    assert (idle.peak_call, idle.false_long_lived().cost_bytes) == (5, 30 * MIB)


def test_wrongly_short() -> None:
    program = Program().mark("step_begin").alloc(0, 5 * MIB).mark("step_end")
    wrong = told(program.alloc(1, 30 * MIB)).false_short_lived()
    assert (wrong.num_tensors, wrong.total_bytes, wrong.live_at_peak_bytes, wrong.cost_bytes) == (
        1,
        5 * MIB,
        5 * MIB,
        15 * MIB,
    )


def test_outside_of_windows_nobody_is_wrong() -> None:
    lifecycle = told(Program().alloc(0, MIB).alloc(1, 5 * MIB).free(1))
    assert lifecycle.false_short_lived().num_tensors == lifecycle.false_long_lived().num_tensors == 0


def test_perfect_knowledge_is_never_wrong() -> None:
    lifecycle = told(first_forward(), is_oracle=True)
    assert lifecycle.false_long_lived().num_tensors == lifecycle.false_short_lived().num_tensors == 0
    assert lifecycle.is_long.tolist() == [False, True, False, True]
    temporary = Program().mark("precise_begin").alloc(0, MIB).alloc(1, MIB).free(0).mark("precise_end").alloc(2, MIB)
    assert told(temporary, is_oracle=True).is_long.tolist() == [False, True, False, True]


def test_pools_at_a_moment() -> None:
    lifecycle = told(first_forward().alloc(3, 512))
    at_end = {state.name: state for state in lifecycle.pools(len(first_forward().calls))}
    assert [at_end[name].num_segments for name in ("default.large", "default.small", "long.large", "long.small")] == [
        0,
        1,
        2,
        0,
    ]
    assert at_end["long.large"].reserved_bytes == 80 * MIB
    assert at_end["long.large"].allocated_bytes == 55 * MIB
    assert at_end["default.small"].allocated_bytes == 512
    assert sum(state.reserved_bytes for state in lifecycle.pools(0)) == 30 * MIB


def test_what_was_there_at_the_start_is_made_first_as_long_lived() -> None:
    program = Program().alloc(0, 3 * MIB).free(1).free(2)
    start = Start(
        base=np.array([1 << 30, 1 << 20]),
        size=np.array([20 * MIB, 2 * MIB]),
        pool=np.zeros(2, np.int32),
        stream=np.zeros(2, np.int32),
        small=np.array([False, True]),
        expandable=np.zeros(2, bool),
        order=np.arange(2),
        block_range=np.array([0, 1, 1], np.int32),
        block_off=np.array([0, 512, 0]),
        block_size=np.array([5 * MIB, 512, 512]),
        block_tensor=np.array([1, 2, 3], np.int32),
        block_requested=np.array([5 * MIB, 7, 512]),
        block_pending=np.array([False, False, True]),
    )
    workload = replace(program.workload(), start=start, num_tensors=4)
    found = replay_lifecycle(workload, program.hooks, log=True)
    assert found.reserved.tolist() == [28 * MIB] * 3  # 2 for the small one, 6 for the large one, 20 for the new one
    assert found.allocated.tolist() == [9 * MIB + 512, 3 * MIB + 512, 3 * MIB]  # a remainder of 1 MiB is not split off
    assert found.device_allocs.tolist() == [1, 1, 1]
    assert found.log is not None
    assert found.log["call"].tolist() == [-1, -1, -1, -1, 0, 0, 1, 1, 2, 2]
    assert checked(workload, found, keep_start=False) == ()
    assert found.seg[0] == 2
    assert found.lifecycle is not None
    assert [state.reserved_bytes for state in found.lifecycle.pools(-1)] == [0, 0, 6 * MIB, 2 * MIB]
    assert found.lifecycle.peak_call == 0


def test_another_checker_agrees() -> None:
    trace = read(GPT)
    subject = Subject.of(trace, trace.devices[0])
    for policy in ("lifecycle", "lifecycle-stack", "lifetime-oracle"):
        for capacity in (None, 5 << 29):
            found = subject.replay(Scenario(policy, "", "2.1", capacity), log=True)
            assert checked(subject.workload, found, keep_start=False) == ()


def test_settings() -> None:
    assert MindSpeedSettings.parse("") == MindSpeedSettings(
        NO_LIMIT, 0.0, optimizes=False, alr_max_bytes=NO_LIMIT, expandable=False
    )
    found = MindSpeedSettings.parse(
        "max_split_size_mb:64,default_lc_threshold:1e6,open_memory_optimize:1,garbage_collection_threshold:0.8", 5
    )
    assert found == MindSpeedSettings(64 * MIB, 1e6, optimizes=True, alr_max_bytes=5)
    assert MindSpeedSettings.parse("open_memory_optimize:false").optimizes is False
    assert MindSpeedSettings.parse("expandable_segments:True").expandable
    for refused in ("max_split_size_mb:20", "roundup_power2_divisions:4", "page_size:1g", "default_lc_threshold:x"):
        with pytest.raises(MemdiagError, match="does not take the setting"):
            MindSpeedSettings.parse(refused)


def test_a_workload_alone_is_not_enough() -> None:
    with pytest.raises(MemdiagError, match="needs the recording"):
        replay(Program().alloc(0, 1).workload(), "lifecycle")


def test_simulate_tells_of_pools(goldens: Path) -> None:
    (path,) = goldens.glob("npu-*-recorded/snapshot.pickle")
    trace = read(path)
    subject = Subject.of(trace, trace.devices[0])
    predictions = []
    for policy in ("npu", "lifecycle", "lifetime-oracle"):
        prediction, found, simulated = predict(
            subject, Scenario(policy, "", "2.1", 61 << 30), with_min_capacity=policy == "lifecycle"
        )
        predictions.append(prediction)
        assert isinstance(found, LifecycleReplay) == (policy != "npu")
        assert simulated.device.usage.reserved.max() == found.reserved.max()
    shown = json.loads(simulate_json.render(report_of(subject, tuple(predictions), with_min_capacity=True)))
    assert "lifetimes" not in shown["results"][0]
    lifetimes = shown["results"][1]["lifetimes"]
    assert lifetimes["bases"] == dict.fromkeys(("setup", "forward", "step", "optimizer"), "marks")
    assert sum(pool["reserved_bytes"] for pool in lifetimes["pools"]) == shown["results"][1]["peak_reserved_bytes"]
    assert 0 < lifetimes["long_lived_bytes"] < lifetimes["total_bytes"]
    assert shown["results"][2]["lifetimes"]["false_long_lived"]["num_tensors"] == 0
    assert shown["results"][1]["min_capacity_bytes"] is not None
    page = simulate.render(report_of(subject, tuple(predictions)))
    assert "run B, pools at the peak" in page
    said = " ".join(page.split())
    assert "The hooks surround the forward of each layer; memdiag found them as follows: model setup (from" in said


def test_no_marks_are_said_to_be_none() -> None:
    found = replayed(Program().alloc(0, 1)).lifecycle
    assert found is not None
    assert found.detail().long_lived_bytes == 0
