"""The history of the CPU's allocator: retained entries, segments, and stacks from the profiler's tree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from memdiag.recorder.backends import cpu_history
from memdiag.recorder.backends.cpu_history import CpuHistory


class Device(NamedTuple):
    type: str


def line(number, name, file="/train.py"):
    return SimpleNamespace(file_name=file, line_number=number, function_name=name)


def call(caller, *children, itself=None):
    fields = SimpleNamespace(caller=caller)
    if itself is not None:
        fields.callsite = itself
    return SimpleNamespace(extra_fields=fields, duration_time_ns=9, children=list(children))


def allocation(time_ns, addr, size, device="cpu"):
    fields = SimpleNamespace(ptr=addr, alloc_size=size, device=Device(device))
    return SimpleNamespace(start_time_ns=time_ns, duration_time_ns=0, extra_fields=fields, children=[])


def stacks(history):
    return {entry["addr"]: [(each["line"], each["name"]) for each in entry["frames"]] for entry in history.entries()}


def test_allocations_are_taken_in_order_of_time_with_their_stacks():
    history = CpuHistory()
    history.keep(100)
    inner = call(line(7, "step"), allocation(3_000, 0x30, 8), allocation(1_000, 0x10, 8), allocation(2_500, 0x20, 8))
    other = SimpleNamespace(extra_fields=SimpleNamespace(), duration_time_ns=5, children=[allocation(4_000, 0x40, 8)])
    history.take([call(line(3, "<module>"), inner, other), allocation(500, 0x5, 8), allocation(600, 0x6, 8, "meta")])
    assert [(entry["time_us"], entry["addr"]) for entry in history.entries()] == [
        *((0, 0x5), (1, 0x10), (2, 0x20), (3, 0x30), (4, 0x40))
    ]
    step = [(7, "step"), (3, "<module>")]
    assert stacks(history) == {0x5: [], 0x10: step, 0x20: step, 0x30: step, 0x40: [(3, "<module>")]}
    entries = history.entries()
    assert entries[1]["frames"] is entries[2]["frames"]  # stored once


@pytest.mark.parametrize(("function", "expected"), [("<module>", [9]), ("main", [9, 2])])
def test_the_line_at_which_the_profiler_started_gives_way_to_the_present_one(function, expected):
    history = CpuHistory()
    history.keep(100)
    start = line(2, "<module>")
    history.take([call(start, call(line(9, function), allocation(1_000, 0x10, 8)), itself=start)])
    assert [number for number, _ in stacks(history)[0x10]] == expected


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6, 100])
def test_the_last_entries_are_retained(monkeypatch, most):
    monkeypatch.setattr(cpu_history, "_SPARE", 0)
    limited, whole = CpuHistory(), CpuHistory()
    for history, limit in ((limited, most), (whole, 1000)):
        history.add(0, 0xF0, 8)  # before: its free is known, but not retained
        history.keep(limit)
        for number in range(12):
            history.add(number, 16 * number, 8)
            if number % 3 == 2:
                history.add(number, 16 * (number - 1), -8)
    everything = whole.entries()
    assert limited.entries() == everything[-most:]
    assert len(limited) == min(most, len(everything))
    assert (limited.allocs, limited.frees) == (12, 4)


def test_each_block_is_a_segment_in_the_snapshot():
    history = CpuHistory()
    history.keep(4)
    for time_us, addr, size in ((1, 0x10, 8), (2, 0x20, 8), (3, 0x10, -8), (4, 0x20, -8)):
        history.add(time_us, addr, size)
    history.add(5, 0x30, 8)
    content = history.content()
    assert [(entry["action"], entry["addr"]) for entry in content["device_traces"][0]] == [
        *(("free_completed", 0x10), ("segment_free", 0x10)),
        *(("free_requested", 0x20), ("free_completed", 0x20), ("segment_free", 0x20)),
        *(("segment_alloc", 0x30), ("alloc", 0x30)),
    ]
    assert [segment["address"] for segment in content["segments"]] == [0x30]
