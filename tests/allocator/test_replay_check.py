"""The checker accepts correct replays, and detects every kind of error in a replay."""

import random
from dataclasses import replace as with_fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator.replay import replay
from memdiag.trace.schema import ACTION_CODES
from tests.allocator.programs import MIB, Program, cuda_program, npu_program
from tests.allocator.replay_check import check
from tests.allocator.rows import Call

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE = (
    ACTION_CODES[name] for name in ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free")
)


def calls(*steps):
    """Builds calls from (tensor, bytes) and (tensor, bytes, stream): allocations; -tensor: a free; "empty_cache"."""
    made = []
    for step in steps:
        if isinstance(step, tuple):
            made.append(Call("alloc", step[0], step[1], step[2] if len(step) > 2 else 0))
        else:
            made.append(Call("empty_cache", 0, 0, 0) if step == "empty_cache" else Call("free", -step, 0, 0))
    return made


def replayed(*steps, conf="", **options):
    work = Program(conf, 1 << 30, "now", calls(*steps)).workload()
    return work, replay(work, "caching", conf=conf, log=True, **{"capacity": 1 << 30, **options})


def changed(result, column, call, value):
    values = getattr(result, column).copy()
    values[call] = value
    return with_fields(result, **{column: values})


def relogged(result, entry, **values):
    log = {name: column.copy() for name, column in result.log.items()}
    for name, value in values.items():
        log[name][entry] = value
    return with_fields(result, log=log)


def without(result, entry):
    return with_fields(result, log={name: np.delete(column, entry) for name, column in result.log.items()})


def entry_of(result, action, number=0):
    return int(np.flatnonzero(result.log["action"] == action)[number])


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_random_replays_hold(seed):
    chance = random.Random(seed)  # noqa: S311 - programs, not secrets
    for program, policies in (
        (cuda_program(chance, 200), ("caching", "expandable")),
        (npu_program(chance, 200), ("npu", "npu-expandable")),
    ):
        policy = policies["expandable_segments:True" in program.conf]
        work = program.workload()
        assert check(work, replay(work, policy, conf=program.conf, capacity=program.total, log=True)) == ()


STEPS = ((1, 30 * MIB), (2, 5 * MIB), (3, 3 * MIB), -2, (4, 2 * MIB), -1, -3, -4, "empty_cache", (5, 700))


def test_the_plain_case_holds():
    assert check(*replayed(*STEPS)) == ()


BROKEN = {
    "reserved is": lambda r: changed(r, "reserved", 3, int(r.reserved[3]) + 512),
    "allocated is": lambda r: changed(r, "allocated", 0, 1),
    "active is": lambda r: changed(r, "active", 4, 1),
    "requested is": lambda r: changed(r, "requested", 4, 1),
    "device_allocs is": lambda r: changed(r, "device_allocs", 0, 2),
    "device_frees is": lambda r: changed(r, "device_frees", 8, 1),
    "ooms is": lambda r: changed(r, "ooms", 8, 1),
    "retries rose": lambda r: changed(r, "retries", 3, 1),
    "the status is": lambda r: changed(r, "status", 0, 1),
    "elsewhere than the row": lambda r: changed(r, "off", 1, 512),
    "overlaps another": lambda r: relogged(changed(r, "off", 2, 0), entry_of(r, ALLOC, 2), off=0),
    "has a block of": lambda r: changed(r, "block", 1, int(r.block[1]) + 512),
    "does not begin where": lambda r: relogged(changed(r, "off", 1, 1024), entry_of(r, ALLOC, 1), off=1024),
    "freed elsewhere": lambda r: relogged(r, entry_of(r, FREE_REQUESTED), off=512),
    "was not live": lambda r: relogged(r, entry_of(r, FREE_REQUESTED), tensor=77),
    "had not begun": lambda r: without(r, entry_of(r, FREE_REQUESTED)),
    "were given back and were not free": lambda r: without(r, entry_of(r, FREE_COMPLETED, 1)),
    "a part of range": lambda r: relogged(r, entry_of(r, SEGMENT_FREE), size=2 * MIB),
    "were held already": lambda r: with_fields(r, bases=np.full_like(r.bases, r.bases[0])),
    "another allocation": lambda r: relogged(r, entry_of(r, ALLOC), size=31 * MIB),
    "out of order": lambda r: relogged(r, entry_of(r, ALLOC), call=9),
    "are allowed": lambda r: with_fields(r, limit_bytes=40 * MIB),
    "of the device": lambda r: with_fields(r, capacity_bytes=40 * MIB),
}


@pytest.mark.parametrize("said", BROKEN)
def test_what_is_broken_is_named(said):
    work, result = replayed(*STEPS)
    assert any(said in fault for fault in check(work, BROKEN[said](result)))


def test_a_tensor_is_allocated_once():
    work, result = replayed((1, MIB), (2, MIB))
    double = with_fields(work, tensor=np.array([1, 1], np.int32))
    assert any(
        "allocated twice" in fault for fault in check(double, relogged(result, entry_of(result, ALLOC, 1), tensor=1))
    )


def test_neighbours_that_were_not_merged():
    """A request that reserves a segment although two freed neighbours form a sufficient range is an error.

    The third request was made on another stream, and the test changes its stream afterwards.
    """
    pieces = (1, 12 * MIB), (2, 12 * MIB), (3, 12 * MIB)
    halves = [(1, 9 * MIB), (2, 9 * MIB), -1, -2, (3, 18 * MIB, 1)]
    work, result = replayed(*halves)
    same_stream = with_fields(work, stream=np.zeros_like(work.stream))
    assert any("passed over" in fault for fault in check(same_stream, result))
    assert check(work, result) == ()
    assert check(*replayed(*pieces)) == ()


def test_the_smallest_piece_that_fits():
    """A request that uses the larger of two sufficient free ranges is an error.

    The ranges were on two streams; the test claims that they were on one.
    """
    work, result = replayed((1, 30 * MIB), (2, 20 * MIB, 1), -1, -2, (3, 20 * MIB))
    claimed = with_fields(work, stream=np.zeros_like(work.stream))
    lied = relogged(result, entry_of(result, SEGMENT_ALLOC, 1), stream=0)
    assert any("would do for" in fault for fault in check(claimed, lied))


def test_sizes_of_other_settings():
    work, result = replayed((1, 5 * MIB + 1), conf="roundup_power2_divisions:4")
    assert any("has a block of" in fault for fault in check(work, with_fields(result, conf="")))


def test_mapped_pieces_are_whole_pages():
    work = Program("", 1 << 30, "now", calls((1, 30 * MIB))).workload()
    result = replay(work, "expandable", capacity=1 << 30, log=True)
    assert check(work, result) == ()
    assert any("no whole pages" in fault for fault in check(work, relogged(result, 0, size=39 * MIB)))
