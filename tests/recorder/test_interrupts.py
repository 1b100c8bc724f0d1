"""Ctrl-C during the recorder's own work is delivered to the program after that work is finished."""

from __future__ import annotations

import os
import signal
import sys
from array import array

import pytest

import memdiag
from memdiag.recorder.columns import Unpacker
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


def test_a_partly_written_mark_is_dropped():
    marks = Marks(lambda: NOWHERE)
    add_time, add_name = marks.module_appenders()
    for number in range(3):
        add_time(number)
        add_name(number)
    marks.place_module((0, 5, 5))
    add_time(99)  # an interrupt here leaves the mark without its name
    marks.add(PHASE, 1)
    marks._marks["time_ns"].append(7)
    marks.trim()
    add_time(3)
    add_name(3)
    marks.add(PHASE, 2)
    content = marks.content()
    for table, rows in (("modules", 4), ("marks", 2)):
        unpacker = Unpacker(content[table].values())
        assert {len(unpacker.unpack(column)) for column in content[table].values()} == {rows * 8}
    assert content["modules"]["time_ns"] == content["modules"]["name"]


def test_a_file_written_while_a_mark_is_appended_moves_no_later_value():
    """A signal handler writes a file between any two steps of a mark; the marks are those without the signal."""

    def recorded(interrupted_at):
        marks, came = Marks(lambda: (0, 5, 5)), 0

        class Column(array):
            def append(self, value):
                nonlocal came
                super().append(value)
                came += 1
                if came == interrupted_at:
                    for table in ("marks", "modules", "tensors"):
                        columns = marks.content()[table]
                        assert len({len(Unpacker(columns.values()).unpack(each)) for each in columns.values()}) == 1

        for columns in (marks._marks, marks._modules[0], marks._seen):
            columns.update({name: Column("q") for name in columns})
        marks._before = Column("q")
        add_time, add_name = marks.module_appenders()
        for number in range(3):
            mark = marks.look(number, marks.add(PHASE, 1))
            marks.see(0, 512 * number, 1, number, mark)
            add_time(number)
            add_name(number)
            marks.place_module((0, number, number))
        content = marks.content()
        del content["marks"]["time_ns"]
        return content, came

    expected, count = recorded(0)
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
