"""The compiled pools agree with the reference on all kinds of programs, and later calls do not affect earlier ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator import workload as w
from memdiag.allocator.policies.lifecycle.marks import HookMarks
from memdiag.allocator.policies.lifecycle.replay import replay_lifecycle
from memdiag.allocator.scenario import Scenario
from tests.allocator.policies.lifecycle.lifecycle_program import (
    Program,
    by_reference,
    check,
    conf_of,
    replayed,
    rows_of,
)
from tests.allocator.policies.lifecycle.lifecycle_reference import MIB, NO_LIMIT, Settings
from tests.allocator.replay_check import check as checked

KIB = 1024
# A few sizes around every boundary, some with equal rounded sizes; there are few, so that they repeat.
SIZES = (
    1,
    512,
    513,
    700,
    100 * KIB,
    MIB - 512,
    MIB,
    MIB + 1,
    3 * MIB // 2,
    2 * MIB,
    2 * MIB + 512,
    29 * MIB // 10,
    3 * MIB,
    4 * MIB,
    9 * MIB,
    10 * MIB - 1,
    10 * MIB,
    12 * MIB,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    22 * MIB,
    40 * MIB,
    41 * MIB,
    60 * MIB,
)
HUGE = (300 * MIB, 1400 * MIB, 1_800_000_000, 1_900_000_000, 2000 * MIB, 3500 * MIB)
MARKS = ("precise_begin", "precise_end", "forward_begin", "forward_end", "step_begin", "step_end", "release")


@st.composite
def wild(draw: st.DrawFn) -> Program:
    """Draws any calls and marks in any order: nested windows, ends without beginnings."""
    dice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = dice.choice(SIZES + HUGE if dice.random() < 0.3 else SIZES, dice.integers(1, 7))
    program, live = Program(), []
    for tensor in range(dice.integers(1, 120)):
        for _ in range(dice.integers(0, 3)):
            program.mark(*dice.choice(MARKS, 1))
        if live and dice.random() < 0.6:
            program.free(live.pop(dice.integers(len(live))))
        if dice.random() < 0.05:
            op, size = ((w.EMPTY_CACHE, 0), (w.SET_FRACTION, 9 * 10**8), (w.EXTERNAL, 64 * MIB), (w.SYNC, 0))[
                dice.integers(4)
            ]
            program.call(op, size)
        program.alloc(tensor, int(dice.choice(sizes)), int(dice.random() < 0.1))
        live.append(tensor)
    return program


@st.composite
def training(draw: st.DrawFn) -> Program:
    """Draws steps of similar layers, the case that the tables are made for."""
    program, tensor = Program(), 0
    size = st.sampled_from(draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=5)))
    # size, and whether it is retained for backward
    layer = draw(st.lists(st.tuples(size, st.booleans()), min_size=1, max_size=5))
    program.mark("precise_begin").alloc(0, draw(size)).alloc(1, draw(size)).mark(
        "precise_end", "forward_begin", "forward_end"
    )
    tensor = 2
    for step in range(draw(st.integers(1, 4))):
        program.mark("step_begin")
        kept: list[int] = []
        for _ in range(draw(st.integers(1, 3))):
            program.mark("forward_begin")
            short: list[int] = []
            for bytes_, stays in layer:
                if draw(st.integers(0, 9)) == 0:  # a slightly different pass
                    continue
                program.alloc(tensor, draw(size) if draw(st.integers(0, 9)) == 0 else bytes_)
                (kept if stays else short).append(tensor)
                tensor += 1
                if short and draw(st.booleans()):
                    program.free(short.pop())
            program.free(*short).mark("forward_end")
        while kept:
            program.alloc(tensor, draw(size)).free(kept.pop()).free(tensor)
            tensor += 1
        if step == 0:
            program.mark("release", "precise_begin").alloc(tensor, draw(size)).mark("precise_end")
            tensor += 1
        program.mark("step_end")
    return program


any_settings = st.builds(
    Settings,
    default_lc_threshold=st.sampled_from((0.0, 512.0, 2.5e6)),
    max_split=st.sampled_from((NO_LIMIT, NO_LIMIT, 21 * MIB, 40 * MIB)),
    memory_optimize=st.sampled_from((False, False, True)),
    alr_max=st.sampled_from((NO_LIMIT, NO_LIMIT, 128 * MIB)),
    fraction=st.sampled_from((None, None, 0.94)),
    expandable=st.sampled_from((False, False, False, True)),
)
any_capacity = st.sampled_from((None, 64 * MIB, 256 * MIB, 512 * MIB, 2048 * MIB, 8192 * MIB))


@settings(max_examples=400)
@given(wild(), any_settings, any_capacity)
def test_any_program_goes_as_in_the_reference(program: Program, chosen: Settings, capacity: int | None) -> None:
    check(program, chosen, capacity)


@settings(max_examples=300)
@given(training(), any_settings, any_capacity)
def test_training_goes_as_in_the_reference(program: Program, chosen: Settings, capacity: int | None) -> None:
    check(program, chosen, capacity)


@settings(max_examples=100)
@given(st.one_of(wild(), training()), any_settings, any_capacity, st.data())
def test_what_comes_later_changes_nothing(
    program: Program, chosen: Settings, capacity: int | None, data: st.DataObject
) -> None:
    whole = rows_of(replayed(program, chosen, capacity))
    cut = data.draw(st.integers(0, len(program.calls)))
    earlier = Program(program.calls[:cut], [mark for mark in program.marks if mark[0] <= cut])
    assert rows_of(replayed(earlier, chosen, capacity)) == whole[:cut]


@settings(max_examples=100)
@given(st.one_of(wild(), training()), any_settings, any_capacity, st.booleans())
def test_blocks_lie_apart_and_sums_are_right(
    program: Program, chosen: Settings, capacity: int | None, is_oracle: bool
) -> None:
    workload = program.workload()
    replay = replay_lifecycle(
        workload, program.hooks, Scenario("lifecycle", conf_of(chosen), "", capacity), log=True, is_oracle=is_oracle
    )
    assert checked(workload, replay, keep_start=False) == ()  # memdiag's own checker for logs of any policy
    lifecycle = replay.lifecycle
    assert lifecycle is not None
    for call in {0, len(program.calls) - 1, lifecycle.peak_call} if program.calls else ():
        states = lifecycle.pools(call)
        assert sum(state.reserved_bytes for state in states) == replay.reserved[call]
        assert sum(state.allocated_bytes for state in states) == replay.allocated[call]


def test_no_marks_and_no_calls() -> None:
    replay = replay_lifecycle(
        Program().alloc(0, 5).workload(0), HookMarks.none(), Scenario("lifecycle", capacity_bytes=MIB)
    )
    assert len(replay.reserved) == 0
    assert by_reference(Program())[1] == []
