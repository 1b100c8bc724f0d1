"""Logs of RMM: allocations, frees and failures, with times of the day and null pointers."""

from __future__ import annotations

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.rmm_csv import sniff
from memdiag.trace import schema

HEAD = "Thread,Time,Action,Pointer,Size,Stream\n"
ROWS = """7,23:59:59.999961,allocate,0x10012400000,1048576,0
7,00:00:00.000977,allocate,0x10012500000,2048,0x7f8a38001020
8,00:00:01.841977,free,0x10012400000,1048576,0
"""


def read(tmp_path, text, name="rmm.dev1.csv"):
    path = tmp_path / name
    path.write_text(HEAD + text)
    return load(path)


def test_a_log(tmp_path):
    trace = read(tmp_path, ROWS)
    (device,) = trace.devices
    assert (trace.format, trace.backend, device.device) == ("rmm-csv", None, 1)
    assert device.usage.allocated.tolist() == [1048576, 1050624, 2048]
    assert device.usage.requested.tolist() == [1048576, 1050624, 2048]
    assert device.usage.reserved.max() == -1
    assert device.tensors.stream.tolist() == [0, 0x7F8A38001020]
    assert {note.code for note in trace.notes} == {"MD910", "MD911", "MD913", "MD917"}


def test_times_continue_after_midnight(tmp_path):
    times = read(tmp_path, ROWS).devices[0].events.time_us
    assert (times[1:] - times[:-1]).tolist() == [1016, 1_841_000]


@pytest.mark.parametrize("time", ["15:47:02:841961", "15:47:02.841961", "1634567890.841961"])
def test_forms_of_times(tmp_path, time):
    trace = read(tmp_path, f"7,{time},allocate,0x10,4,0\n")
    assert int(trace.devices[0].events.time_us[0]) % 1_000_000 == 841_961


def test_a_failure_is_an_out_of_memory_event(tmp_path):
    trace = read(tmp_path, ROWS + "8,00:00:02.841977,allocate failure,(nil),4000000000,0\n")
    events = trace.devices[0].events
    assert (events.action[-1], events.size[-1]) == (schema.OOM, 4_000_000_000)


def test_a_free_of_earlier_memory_belongs_to_a_tensor_from_before_the_log(tmp_path):
    trace = read(tmp_path, "7,10:00:00.1,free,0x500,4096,0\n7,10:00:00.2,allocate,0x600,512,0\n")
    assert trace.devices[0].tensors.alloc_at.tolist().count(-1) == 1


def test_rows_that_cannot_be_are_counted(tmp_path):
    bad = "x,y,allocate,0x10,4,0\n7,10:00:00.0,allocate,0x0,4,0\n7,10:00:00.0,grow,0x10,4,0\n7,1:00:00,free,0x10,-4,0\n"
    trace = read(tmp_path, ROWS + bad)
    assert "4 rows" in next(note.text for note in trace.notes if note.code == "MD916")


def test_the_device_is_chosen_without_a_number_in_the_name(tmp_path):
    trace = read(tmp_path, ROWS, "rmm.csv")
    assert trace.devices[0].device == 0
    assert "MD919" in {note.code for note in trace.notes}


def test_an_empty_log_is_refused(tmp_path):
    with pytest.raises(RefusedFile) as refused:
        read(tmp_path, "")
    assert "LoggingResourceAdaptor" in refused.value.hint


@pytest.mark.parametrize(
    ("head", "known"), [(HEAD.encode(), True), (b"id,lower,upper,size\n", False), (b"\xff\xfe", False), (b"", False)]
)
def test_sniff(head, known):
    assert sniff(head) is known
