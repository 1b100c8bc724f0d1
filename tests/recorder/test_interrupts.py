"""Ctrl-C during the recorder's own work is delivered to the program after that work is finished."""

from __future__ import annotations

import os
import signal
import sys
import time
from array import array

import pytest

import memdiag
from memdiag.recorder.columns import Unpacker
from memdiag.recorder.guard import contained
from memdiag.recorder.interrupts import held, is_in_profile_function
from memdiag.recorder.marks import NOWHERE, PHASE, Marks


def interrupted_twice(done):
    with held():
        os.kill(os.getpid(), signal.SIGINT)
        with held():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("inside")
        done.append("outside")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_is_delivered_after_the_outermost_block():
    done = []
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_twice(done)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["inside", "outside"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_ignored_and_default_handlers_are_not_replaced(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with held():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_mark_that_ctrl_c_has_begun_moves_no_later_one():
    marks = Marks(lambda: NOWHERE)
    first = marks.add(PHASE, 1)
    marks._before.append(7)  # an interrupt here leaves the mark itself out
    second = marks.add(PHASE, 1)
    assert [marks._before[mark] for mark in (first, second)] == [-1, first]


def test_a_file_written_while_a_mark_is_appended_moves_no_later_value():
    """A signal handler writes a file between any two steps of a mark; the marks are those without the signal."""

    def recorded(interrupted_at):
        marks, came = Marks(lambda: (0, 5, 5)), 0

        class Numbers(array):
            def extend(self, values):
                super().extend(values)
                look()

            def __setitem__(self, where, value):
                super().__setitem__(where, value)
                look()

        def look():
            nonlocal came
            came += 1
            if came == interrupted_at:
                for table in ("marks", "modules", "tensors"):
                    columns = marks.content()[table]
                    assert len({len(Unpacker(columns.values()).unpack(each)) for each in columns.values()}) == 1

        modules = marks.of_modules()
        for rows in (marks._marks, modules._rows, modules._places, marks._seen):
            rows.values = Numbers("q")
            rows.append = rows.values.extend
        modules.append = modules._rows.append
        marks._before = Numbers("q")
        for number in range(3):
            mark = marks.look(number, marks.add(PHASE, 1))
            marks.see(0, 512 * number, 1, number, mark)
            modules.append((number, number))
            if number:
                modules.place((0, number, number))
        content = marks.content()
        del content["marks"]["time_ns"]
        return content, came

    expected, count = recorded(0)
    assert count
    for number in range(1, count + 1):
        assert recorded(number)[0] == expected


def test_a_program_that_catches_interrupts_is_recorded(cpu):
    run = cpu("small.py", "interrupted", settings={"every": 1})
    assert run.done.stdout == "True\n"
    assert "memdiag:" not in run.done.stderr
    trace = memdiag.load(run.path())
    assert trace.devices[0].events.step.max() >= 2


def test_running_inside_a_profile_function_is_detected():
    inside = []

    def look(*_):
        inside.append(is_in_profile_function())

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        len("a call")
    finally:
        sys.setprofile(before)
    assert inside
    assert all(inside)
    assert not is_in_profile_function()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGCHLD", "SIGALRM"])
def test_an_error_of_another_handler_reaches_the_program_and_not_the_recorder(name):
    """As of a DataLoader whose worker was killed while a file is written, or of a program's timeout."""
    number = getattr(signal, name)

    def raises(*_):
        raise RuntimeError("worker is killed")

    done = []

    @contained
    def write():
        with held():
            os.kill(os.getpid(), number)
            done.append("inside")

    before = signal.signal(number, raises)
    try:
        write()
        assert done == ["inside"]
        with pytest.raises(RuntimeError, match="killed"):
            time.sleep(5)
        assert signal.getsignal(number) is raises
    finally:
        signal.signal(number, before)
