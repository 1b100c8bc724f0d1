"""A plan of one step serves similar steps without look-ahead; other requests use the fallback allocator.

No simulated policy needs less memory than the bound.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator import workload as w
from memdiag.allocator.as_trace import as_trace
from memdiag.allocator.policies.bound.policy import BOUND
from memdiag.allocator.policies.static_plan.policy import STATIC_PLAN
from memdiag.allocator.policies.static_plan.replay import make_plan, replay_bound, replay_planned
from memdiag.allocator.replay import replay
from memdiag.allocator.result import OK, OUT_OF_MEMORY
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.sources.torch_snapshot import read
from memdiag.units import MIB
from tests.allocator.policies.static_plan.plan_program import Program, all_served, load, problems, training

ROOT = Path(__file__).parents[4]


def peak(found):
    return int(found.reserved.max(initial=0))


def bounded(work, capacity=None, *, log=False):
    return replay_bound(work, BOUND, Scenario("bound", capacity_bytes=capacity), log=log)


def test_steps_that_repeat_need_no_more_than_is_live_at_once():
    program = training([4, 4, 4])
    found = program.replay()
    assert problems(found) == []
    assert all_served(found, program.workload())
    assert peak(found) == load(program.workload()) == found.planned.run_live_peak_bytes
    told = found.planned
    assert (told.num_steps, told.planned_step, told.next_step) == (3, 1, 2)
    assert (told.next_step_requests.num_planned, told.next_step_requests.num_in_gaps) == (
        told.next_step_requests.num_requests,
        0,
    )
    assert told.fallback_bytes == 0


def test_a_shorter_batch_goes_through_the_places_of_the_longest():
    program = training([2, 3, 5, 1, 4])
    found = program.replay()
    told = found.planned
    assert told.planned_step == 2
    assert (told.unseen_requests.num_requests, told.unseen_requests.num_planned) == (
        told.unseen_requests.num_requests,
        told.unseen_requests.num_requests,
    )
    assert peak(found) == load(program.workload())


def test_one_request_more_costs_no_other_its_place():
    program = training([4, 4, 4], extra={2: 6 * MIB})
    told = program.replay().planned
    assert told.planned_step == 2  # step 2 needs most memory, so the other steps lack one request of the plan
    assert told.unseen_requests.num_planned == told.unseen_requests.num_requests
    without = training([4, 4, 3], extra={2: 6 * MIB})
    told = without.replay().planned
    assert told.planned_step == 1
    assert told.unseen_requests.num_requests - told.unseen_requests.num_planned == 1


def test_what_the_plan_has_no_place_for_gets_a_gap_or_falls_back():
    program = training([4, 4, 1], extra={2: 6 * MIB})
    told = program.replay().planned
    assert told.unseen_requests.num_in_gaps == 1
    assert told.fallback_bytes == 0
    program = training([4, 4, 1], extra={2: 200 * 1024})  # small tensors may stay long, so they get no gap
    told = program.replay().planned
    assert (told.unseen_requests.num_in_gaps, told.unseen_requests.num_unknown) == (0, 1)
    assert told.fallback_bytes == 2 * MIB


def test_an_output_that_lives_until_the_next_one_is_there_has_two_places():
    program = training([4, 4, 4, 4], keeps_output=True)
    found = program.replay()
    assert problems(found) == []
    assert found.planned.unseen_requests.num_planned == found.planned.unseen_requests.num_requests
    assert peak(found) <= 1.02 * load(program.workload())


def test_a_recording_that_breaks_off_in_its_second_step_is_planned_as_it_was():
    program = training([4, 4])
    begin = program.steps.index(1)
    program.calls, program.steps = program.calls[: begin + 6], program.steps[: begin + 6]
    found = program.replay()
    assert problems(found) == []
    assert found.planned.planned_step == 0
    assert peak(found) <= 1.002 * load(program.workload())


def test_a_place_is_not_used_again_before_other_streams_are_through():
    program = Program()
    for _ in range(3):
        program.begin()
        first = program.alloc(8 * MIB, 1)
        program.call(w.FREE_REQUESTED, first)
        second = program.alloc(8 * MIB, 2)
        program.call(w.FREE_COMPLETED, first)
        program.free(second)
    found = program.replay()
    assert problems(found) == []
    assert peak(found) == 16 * MIB
    late = Program()  # the free in the second step completes later than the planned one
    for step in range(3):
        late.begin()
        first = late.alloc(8 * MIB, 1)
        late.call(w.FREE_REQUESTED, first)
        if step != 1:
            late.call(w.FREE_COMPLETED, first)
        second = late.alloc(8 * MIB, 2)
        if step == 1:
            late.call(w.FREE_COMPLETED, first)
        late.free(second)
    assert problems(late.replay()) == []
    assert load(late.workload()) == 16 * MIB


def test_each_stream_has_an_arena_of_its_own():
    program = Program()
    for _ in range(2):
        program.begin()
        program.free(program.alloc(8 * MIB, 1, stream=0))
        program.free(program.alloc(8 * MIB, 2, stream=1))
    found = program.replay()
    assert problems(found) == []
    assert peak(found) == 16 * MIB  # the first stream may still read the freed memory


def test_without_steps_all_of_it_is_planned():
    program = training([4, 4])
    work = program.workload()
    planned = make_plan(work, np.full(len(work.op), -1), np.full(len(work.op), -1), "none")
    found = replay_planned(planned, STATIC_PLAN, Scenario("plan"), log=True)
    assert problems(found) == []
    assert peak(found) == load(work)
    assert (found.planned.planned_step, found.planned.next_step_requests) == (None, None)


def test_a_card_without_room_for_the_plan_is_served_by_the_caching_allocator():
    program = training([4, 4, 4])
    least = peak(program.replay())
    fits = program.replay(capacity=-(-least // (2 * MIB)) * 2 * MIB)
    assert all_served(fits, program.workload())
    assert fits.planned.fallback_bytes == 0
    tight = program.replay(capacity=least - 4 * MIB)
    assert problems(tight) == []
    assert tight.planned.arena_bytes == 0
    assert tight.planned.unseen_requests.num_no_room == tight.planned.unseen_requests.num_requests
    assert (tight.status == OUT_OF_MEMORY).any()
    assert peak(tight) <= least - 4 * MIB


def test_plans_are_the_same_every_time():
    program = training([3, 5, 5, 2], keeps_output=True, extra={3: 5 * MIB})
    first, second = program.replay(), program.replay()
    for name in ("seg", "off", "reserved", "active"):
        assert (getattr(first, name) == getattr(second, name)).all()


@st.composite
def programs(draw):
    """Draws trainings with different steps, a second stream, delayed frees, and long-lived tensors."""
    program = Program(done=draw(st.sampled_from(["recorded", "now", "manual"])))
    kinds = draw(st.lists(st.tuples(st.integers(1, 12), st.integers(-1, 3), st.integers(0, 1)), min_size=1, max_size=8))
    stay = [program.alloc(draw(st.integers(1, 3 * MIB)), 7) for _ in range(draw(st.integers(0, 3)))]
    for _ in range(draw(st.integers(0, 4))):
        program.begin()
        scale = draw(st.sampled_from([MIB // 4, MIB, MIB, 3 * MIB // 2]))
        live = []
        for size, site, stream in kinds:
            if draw(st.integers(0, 9)) == 0:
                continue
            live.append(program.alloc(size * scale, site, stream))
            if draw(st.booleans()) and program.done != "recorded":
                program.call(w.RECORD_STREAM, live[-1], draw(st.integers(0, 1)))
            if len(live) > 1 and draw(st.booleans()):
                program.free(live.pop(draw(st.integers(0, len(live) - 1))))
        if live and program.done == "recorded" and draw(st.booleans()):
            late = live.pop()
            program.call(w.FREE_REQUESTED, late)
            program.free(*live[1:])
            program.call(w.FREE_COMPLETED, late)
            live = live[:1]
        stay += live[: draw(st.integers(0, 2))]
        program.free(*(each for each in live if each not in stay))
        if draw(st.integers(0, 4)) == 0:
            program.call(w.EMPTY_CACHE)
        if program.done == "manual":
            program.call(w.SYNC)
    return program


@settings(max_examples=60, deadline=None)
@given(programs(), st.one_of(st.none(), st.integers(1, 60)))
def test_nothing_lies_on_another_and_everything_is_served_where_there_is_room(program, capacity):
    work = program.workload()
    found = program.replay(capacity=None if capacity is None else capacity * 2 * MIB)
    assert problems(found) == []
    if capacity is None:
        assert all_served(found, work)
        assert found.ooms[-1] == 0 if len(found.ooms) else True
    else:
        assert peak(found) <= capacity * 2 * MIB
    low = bounded(work, capacity=None if capacity is None else capacity * 2 * MIB, log=True)
    assert problems(low) == []
    assert (low.reserved == low.active).all()
    if capacity is None:
        assert peak(low) <= peak(found)
        assert peak(low) <= peak(replay(work, "caching"))
        if work.done == "recorded":
            assert peak(low) == load(work) == found.planned.run_live_peak_bytes
    elif (low.status == OUT_OF_MEMORY).any():  # if even the bound fails, the plan fails too
        assert (found.status == OUT_OF_MEMORY).any()


@settings(max_examples=40, deadline=None)
@given(programs(), st.data())
def test_with_its_plan_a_run_does_not_look_ahead(program, data):
    work, planned = program.workload(), program.plan()
    whole = replay_planned(planned, STATIC_PLAN, Scenario("plan"))
    n = data.draw(st.integers(0, len(work.op)))
    cut = {name: getattr(planned.workload, name)[:n] for name in ("op", "tensor", "size", "stream", "pool", "row")}
    columns = {name: getattr(planned, name)[:n] for name in ("pool", "site", "step")}
    rest = np.flatnonzero(planned.workload.op[n:] == w.ALLOC)
    if data.draw(st.booleans()) and len(rest):  # later requests differ
        cut = {name: getattr(planned.workload, name).copy() for name in cut}
        cut["size"][n:][rest] += data.draw(st.integers(1, 4 * MIB))
        columns = {name: getattr(planned, name) for name in columns}
    requests = planned.requests
    kept = requests.call < len(cut["op"])
    requests = replace(
        requests, **{name: getattr(requests, name)[kept] for name in ("call", "size", "stream", "site", "death")}
    )
    part = replay_planned(
        replace(planned, workload=replace(planned.workload, **cut), requests=requests, **columns),
        STATIC_PLAN,
        Scenario("plan"),
    )
    for name in ("seg", "off", "block", "status", "reserved"):
        assert (getattr(part, name)[:n] == getattr(whole, name)[:n]).all()


def test_the_bound_fails_only_where_more_is_live_than_there_is():
    program = training([4, 4])
    most = load(program.workload())
    assert (bounded(program.workload(), capacity=most).status == OK).all()
    failed = bounded(program.workload(), capacity=most - 512, log=True)
    assert (failed.status == OUT_OF_MEMORY).sum() >= 1
    assert problems(failed) == []
    assert peak(failed) <= most - 512


def test_the_bound_waits_for_other_streams_before_it_fails():
    program = Program()
    first = program.alloc(8 * MIB)
    program.call(w.FREE_REQUESTED, first)
    program.alloc(8 * MIB)
    program.call(w.FREE_COMPLETED, first)
    assert peak(bounded(program.workload())) == 16 * MIB
    found = bounded(program.workload(), capacity=8 * MIB)
    assert (found.ooms[-1], found.retries[-1]) == (0, 1)


@pytest.mark.parametrize(
    "name",
    [
        "examples/gpt-train.pickle",
        *(
            f"tests/goldens/{each}/snapshot.pickle"
            for each in ("cuda-2.13.0-recorded", "npu-2.13.0-recorded", "cuda-2.13.0-train")
        ),
    ],
)
def test_recorded_trainings_need_two_percent_more_than_the_bound_at_most(name):
    trace = read(ROOT / name)
    subject = Subject.of(trace, trace.devices[0])
    found, low = (subject.replay(Scenario(name), log=True) for name in ("plan", "bound"))
    assert problems(found) == problems(low) == []
    assert all_served(found, subject.workload)
    assert peak(low) <= peak(found) <= 1.02 * peak(low)
    assert found.planned.run_live_peak_bytes == peak(low)
    for each in (found, low):
        simulated = as_trace(each, subject.workload, trace, trace.devices[0], kept_start=False)
        usage = simulated.device.usage
        assert int(usage.reserved.max()) == peak(each)
        assert int(usage.active.max()) == int(each.active.max())
        assert int(usage.allocated.max()) == int(each.allocated.max())
        # a plan uses other addresses than the start of the free range
        assert set(simulated.device.anomalies) <= {"gap"}
