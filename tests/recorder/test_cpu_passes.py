"""Stacks of repeated passes on the CPU are those of the first ones, and never wrong."""

from __future__ import annotations

import ast
import pickle
import sys
import threading
import time
from array import array

import pytest

from memdiag.recorder.backends import cpu_passes
from memdiag.recorder.backends.cpu import Cpu
from memdiag.recorder.backends.cpu_passes import TrainingPasses
from memdiag.recorder.backends.cpu_stacks import NO_STACK, CallStacks
from memdiag.recorder.marks import FORWARD, OUTSIDE

torch = pytest.importorskip("torch")

FIRST, SECOND, OTHER = 11, 12, 13  # numbers of stacks


@pytest.fixture
def passes():
    return TrainingPasses(CallStacks())


def events(passes, *sizes, address=0x1000):
    """Returns one pass: sizes in bytes, negative ones free the latest block of that size."""
    start = passes.begin(FORWARD, sys._getframe(1)) + 1
    blocks, found = {}, []
    for number, size in enumerate(sizes):
        addr = blocks.pop(-size, 0x10) if size < 0 else address + 0x100 * number
        blocks[size] = addr
        found.append((start + number, number, addr, size, None, number))
    return found


def reported(*stacks):
    """Returns the profiler's answers for the events of a pass."""
    return lambda _, number: stacks[number % len(stacks)]


def test_a_repeated_pass_has_the_stacks_of_the_earlier_one(passes):
    shares = []
    for number in (reported(FIRST, SECOND), reported(FIRST, SECOND), None):
        found = passes.stacks(events(passes, 64, 128), number)  # one line: the place is the same
        shares.append(passes.share)
        assert list(found) == [FIRST, SECOND]
    assert (shares, passes.num_found, passes.num_outer) == ([0, 1, 1], 2, 0)


def test_other_sizes_and_other_places_are_not_the_same(passes):
    shares = []
    for sizes, number in (((64, 128), reported(FIRST)), ((64, 256), None), ((64, 128), None)):
        passes.stacks(events(passes, *sizes), number)
        shares.append(passes.share)
    passes.stacks(events(passes, 64, 128), None)  # called by another line
    assert [*shares, passes.share] == [0, 0, 1, 0]


def test_a_long_pass_may_have_other_sizes_but_no_other_order(passes):
    sizes = (64, 128, -64, 64, -128) * 4
    same = tuple(size * 3 for size in sizes)
    other = (*sizes[:-2], -128, 64)
    for chosen, number, share in ((sizes, reported(FIRST, SECOND), 0), (same, None, 1), (other, None, 0)):
        found = passes.stacks(events(passes, *chosen), number)
        assert passes.share == share
        if share:
            assert list(found) == [FIRST, SECOND] * 10


def test_a_pass_whose_stacks_keep_changing_is_not_used(passes):
    for number in (reported(FIRST), reported(OTHER), reported(FIRST), reported(OTHER), None):
        found = passes.stacks(events(passes, 64), number)
    assert passes.share == 0
    assert FIRST not in found
    assert OTHER not in found


def test_an_unknown_pass_has_the_stack_at_its_beginning_if_it_is_called_there(passes):
    frame = sys._getframe()
    for kind, has_stack in ((FORWARD, True), (OUTSIDE, False)):
        start = passes.begin(kind, frame)
        (stack,) = passes.stacks([(start + 1, 0, 0x10, 64, None, None)], None)
        assert (stack != NO_STACK) == has_stack
        if has_stack:
            innermost = passes._stacks.frames()[stack][0]
            assert (innermost["filename"], innermost["name"]) == (__file__, frame.f_code.co_name)
    assert passes.num_outer == 1


def test_events_belong_to_the_latest_pass_before_them(passes):
    first, second = (passes.begin(FORWARD, sys._getframe()) for _ in range(2))  # one place
    assert second > first
    passes.stacks([(second - 1, 0, 0x10, 64, None, 0), (second, 1, 0x20, 64, None, 0)], reported(FIRST))
    assert passes.share == 1  # the second one is known from the first


def test_a_place_is_new_until_its_passes_are_known_or_too_often_unknown(passes):
    seen = []
    for size in (64, 64, 64, *range(65, 75), *[64] * 200, 75, 76, 77):
        found = events(passes, size)
        seen.append(passes.is_new)
        passes.stacks(found, reported(FIRST))
    assert seen[:13] == [True, True, False, False, *[True] * 7, False, False]  # eight tries
    assert seen[13:] == [*[False] * 201, True, True]  # and one more for each hundred known passes


def test_calls_are_reported_until_an_unknown_pass_has_ended(monkeypatch):
    backend, turned = Cpu(), []
    backend._torch, backend._thread, backend._running = torch, threading.get_ident(), True
    backend._last = time.time_ns() + 10**12  # nothing is collected because of the time
    monkeypatch.setattr(backend, "_turn_over", lambda *_: turned.append(backend._stacks))
    passes = backend._history.passes
    for number in range(5):
        if number == 1:
            backend._repeats, backend._stacks = True, False
        for place in passes._places.values():
            place.is_unknown = number == 2
        backend.begin_pass(FORWARD)
        passes.stacks([], None)
        assert turned == [[], [], [True], [True, False], [True, False]][number]


def test_a_new_pass_that_goes_on_when_events_are_collected(passes):
    """The recorder collects them at the beginning of a pass: it needs the calls of this one, if the last was known."""
    for is_new in (True, True, False):
        passes.begin(FORWARD, sys._getframe())
        passes.stacks([], reported(FIRST))
        assert passes.goes_on_new == is_new
        passes.stacks([(time.time_ns(), 0, 0x10, 64, None, 0)], reported(FIRST))


def test_places_and_stored_events_are_limited(passes, monkeypatch):
    monkeypatch.setattr(cpu_passes, "_MOST_PLACES", 1)
    passes.stacks(events(passes, 64), reported(FIRST))
    passes.stacks(events(passes, 64), reported(FIRST))  # another line, and so another place
    passes.stacks(events(passes, 64), None)
    assert len(passes._places) == 1
    passes._room = 0
    for number in (reported(FIRST), reported(FIRST)):
        passes.stacks(events(passes, 4096), number)
    assert passes.share == 0
    assert passes.stacks([], None) == array("q")
    assert passes.share is None


def lines(run):
    """Returns what the recorder says, and numbers of elements with and without lines of the program."""
    content = pickle.loads(run.path().read_bytes())
    found, missing = [], []
    for entry in content["device_traces"][0]:
        if entry["action"] == "alloc":
            own = [frame["line"] for frame in entry["frames"] if frame["filename"].endswith("repeats.py")]
            (found if own else missing).append((entry["size"] // 4, own))
    return content["memdiag"], found, missing


def test_repeated_passes_need_no_calls_and_have_the_right_lines(cpu):
    run = cpu("repeats.py", "trained")
    own, found, missing = lines(run)
    by_size = ast.literal_eval(run.done.stdout)
    assert {size for size, _ in found} == set(by_size)
    assert own["stacks_of_earlier_passes"] > len(found)
    assert not missing
    assert {(size, of[1]) for size, of in found} == set(by_size.items())  # made() allocates, and is called there


def test_a_stretch_of_many_calls_is_soon_recorded_without_them(cpu):
    run = cpu("repeats.py", "read")
    own, found, _ = lines(run)
    assert {size for size, _ in found} >= {1_000, 2_000}  # the first pass is recorded with calls again
    assert own["counts"][0]["allocs"] >= len(found)
