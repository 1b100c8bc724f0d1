"""Waits free the needed memory and are no longer than those of a simple search that adds one wait at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.offload.clock import Clock
from memdiag.offload.schedule import CPU, Copies
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows

NUM_EVENTS = 30
GB = 10**9


@st.composite
def cases(draw):
    """Draws copies of windows, a clock, tensor sizes, and the bytes that must be off the device after each event."""
    edges = st.tuples(st.integers(0, NUM_EVENTS - 2), st.integers(1, NUM_EVENTS), st.integers(1, 4))
    rows = draw(st.lists(edges, min_size=1, max_size=10))
    begin, length, size = np.array(rows).T
    end, size = np.minimum(begin + length, NUM_EVENTS), size * GB
    n = len(rows)
    windows = Windows(np.arange(n), begin, end, size, size, np.zeros(n, int), np.ones(n, bool))
    steps = draw(st.lists(st.floats(0.001, 0.5), min_size=NUM_EVENTS, max_size=NUM_EVENTS))
    clock = Clock(np.append(0.0, np.cumsum(steps)), None, 1, is_known=True)
    idle = sum(
        np.where((np.arange(NUM_EVENTS) >= first) & (np.arange(NUM_EVENTS) < last), much, 0)
        for first, last, much in zip(begin, end, size, strict=True)
    )
    asked = draw(st.lists(st.floats(-0.5, 1), min_size=NUM_EVENTS, max_size=NUM_EVENTS))
    copies = Copies.of(windows, np.arange(n), np.full(n, CPU), clock, OffloadSettings())
    return copies, clock, size, (idle * np.array(asked)).astype(np.int64)


def case_of(begin, end, size, seconds, needs):
    """Returns copies, a clock, tensor sizes, and the bytes that must be off the device; ``needs`` has GB by event."""
    n, size = len(begin), np.array(size) * GB
    windows = Windows(np.arange(n), np.array(begin), np.array(end), size, size, np.zeros(n, int), np.ones(n, bool))
    clock = Clock(np.array(seconds), None, 1, is_known=True)
    excess = np.zeros(len(seconds) - 1, np.int64)
    for event, much in needs.items():
        excess[event] = much * GB
    return Copies.of(windows, np.arange(n), np.full(n, CPU), clock, OffloadSettings()), clock, size, excess


def gone(moves, size):
    events = np.arange(NUM_EVENTS)[:, None]
    return ((moves.out_at <= events) & (moves.back_at > events)) @ size


def one_by_one(copies, clock, size, excess):
    """Adds one wait at a time; returns the bytes off the device after each event, and the seconds waited."""
    seconds, hold = clock.seconds.copy(), np.zeros(len(size), np.int64)
    stalled = 0.0
    for _ in range(500):
        moves = copies.laid_out(Clock(seconds, None, 1, is_known=True), hold=hold)
        short = np.flatnonzero(gone(moves, size) < excess)
        if not len(short):
            break
        at = short[0]
        lacks = excess[at] - gone(moves, size)[at]
        going = np.flatnonzero((moves.out_end > seconds[at]) & (copies.begin < at))
        going = going[np.argsort(moves.out_end[going])]
        enough = np.searchsorted(np.cumsum(size[going]), lacks)
        early = np.flatnonzero(
            (moves.back_at <= at) & (moves.out_end <= seconds[at]) & (copies.end > at) & (hold <= at)
        )
        if enough < len(going):
            wait = moves.out_end[going[enough]] - seconds[at] + 1e-12
            seconds[at:] += wait
            stalled += wait
        elif len(early):
            hold[early[np.argmax(copies.end[early])]] = at + 1
        else:
            break
    return gone(moves, size), stalled


@given(cases())
@settings(max_examples=200, deadline=None)
def test_memory_is_freed_with_no_more_waiting_than_one_wait_at_a_time(case):
    copies, clock, size, excess = case
    later, hold, stalled = copies.wait_for_room(clock, size, excess)
    moves = copies.laid_out(later, hold=hold)
    there, waited = one_by_one(copies, clock, size, excess)
    assert (np.diff(later.seconds) >= 0).all()
    assert np.isclose(later.seconds[-1] - clock.seconds[-1], stalled)
    if (there >= excess).all():
        assert (gone(moves, size) >= excess).all()
        assert stalled <= waited + 1e-9


# A copy is late if its tensor is needed before the copy ends. 4 GB take 154 ms out and 163 ms back, 1 GB a quarter.
STEPS = [0.5] * 18 + [0.015625] * 9 + [0.125, 0.5, 0.5]


def test_the_program_does_not_wait_for_a_copy_whose_tensor_is_needed_already():
    seconds = np.append(0, np.cumsum(STEPS))
    copies, clock, size, excess = case_of([0, 18], [28, 19], [1, 4], seconds, {27: 1})
    later, hold, stalled = copies.wait_for_room(clock, size, excess)
    assert stalled == 0
    assert (gone(copies.laid_out(later, hold=hold), size) >= excess).all()


def test_the_program_does_not_wait_for_memory_that_a_late_reload_leaves_free():
    # The second copy is late, so the reload of the first begins late. The third is still being copied at event 27.
    seconds = np.append(0, np.cumsum(STEPS))
    copies, clock, size, excess = case_of([0, 18, 19], [28, 19, 29], [1, 4, 1], seconds, {27: 1})
    moves = copies.laid_out(clock)
    assert moves.out_end[2] > clock.seconds[27]
    assert gone(moves, size)[27] == excess[27]
    later, hold, stalled = copies.wait_for_room(clock, size, excess)
    assert stalled == 0
    assert (gone(copies.laid_out(later, hold=hold), size) >= excess).all()
