"""The raw file of allocator calls of the Ascend profiler is read: two records per free, in either order."""

import json
import struct

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.trace import schema

MALLOC, FREE, DONE = 0, 1, 2
A, REQUESTED, FREED = schema.ALLOC, schema.FREE_REQUESTED, schema.FREE_COMPLETED
PTR = 0x1200_0000_0000


def record(call, time, size, allocated, active, ptr=PTR, reserved=1 << 20, component=0, device=0, kind=20):
    value = struct.pack(
        "<7q2b3B2Q", ptr, time, size, allocated, reserved, active, 3, kind, device, component, call, 0, 11, 12
    )
    return struct.pack("<HI", 3, len(value)) + value


def write(path, *records):
    path.write_bytes(b"".join(records))
    return path


def test_a_free_that_is_complete_at_once_is_one_event(tmp_path):
    file = write(
        tmp_path / "torch.memory_usage",
        record(MALLOC, 1000, 512, 1536, 1536),
        record(DONE, 2000, -512, 1024, 1024),
        record(FREE, 2300, -512, 1024, 1024),
        record(MALLOC, 3000, 1024, 2048, 2048),
    )
    trace = load(file)
    device = trace.devices[0]
    assert (trace.format, trace.backend) == ("ascend-memory-usage", "npu")
    assert device.events.action.tolist() == [A, FREED, A]
    assert device.events.addr.tolist() == [PTR] * 3
    assert device.events.size.tolist() == [512, 512, 1024]
    assert device.events.time_us.tolist() == [1, 2, 3]
    assert device.usage.allocated.tolist() == [1536, 1024, 2048]
    assert device.usage.reserved.tolist() == [1 << 20] * 3
    assert device.start["allocated"] == device.start["active"] == 1024
    assert device.anomalies == {}
    assert {note.code for note in trace.notes} >= {"MD911", "MD913", "MD914", "MD917"}


def test_a_free_that_waits_is_two(tmp_path):
    file = write(
        tmp_path / "torch.memory_usage",
        record(MALLOC, 1, 512, 512, 512),
        record(FREE, 2, -512, 0, 512),
        record(MALLOC, 3, 64, 64, 576, ptr=PTR + 4096),
        record(DONE, 4, -512, 64, 64),
        record(FREE, 5, -64, 0, 64, ptr=PTR + 4096),
    )
    device = load(file).devices[0]
    assert device.events.action.tolist() == [A, REQUESTED, A, FREED, REQUESTED]
    assert device.usage.active.tolist() == [512, 512, 576, 64, 64]


def test_files_without_completions(tmp_path):
    file = write(
        tmp_path / "torch.memory_usage",
        record(FREE, 1, -512, 0, 0),
        record(MALLOC, 2, 64, 64, 64),
        record(FREE, 3, -64, 0, 0),
    )
    assert load(file).devices[0].events.action.tolist() == [REQUESTED, FREED, A, FREED]


def test_workspace_host_and_nonsense_are_left_out(tmp_path):
    file = write(
        tmp_path / "torch.memory_usage",
        record(MALLOC, 1, 512, 512, 512),
        record(MALLOC, 2, 512, 512, 512, component=1, reserved=6 << 20),
        record(MALLOC, 3, 512, 512, 512, kind=0),
        record(9, 4, 512, 512, 512),
        record(MALLOC, 5, 512, 512, 512, device=1),
        b"\x03\x00",
    )
    trace = load(file)
    assert [(d.device, d.num_events) for d in trace.devices] == [(0, 1), (1, 1)]
    notes = {note.code: note.text for note in trace.notes}
    assert "6.00 MiB of workspace" in notes["MD918"]
    assert "1 record of host memory" in notes["MD918"]
    assert "1 record with impossible values" in notes["MD916"]
    assert "2 bytes" in notes["MD916"]


@pytest.mark.parametrize(("counter", "expected"), [(False, 5_000_001_000), (True, 5_000_000_010)])
def test_the_clock(tmp_path, counter, expected):
    folder = tmp_path / "FRAMEWORK"
    folder.mkdir()
    start = {"syscnt_enable": counter, "freq": 100, "start_cnt": 999_000, "start_monotonic": 0}
    end = {"collectionTimeEnd": 5_000_000_000_000 + 77, "MonotonicTimeEnd": 77}
    (tmp_path / "profiler_info.json").write_text(
        json.dumps({"start_info": start, "end_info": end, "torch_npu_version": "2.13.0"})
    )
    trace = load(write(folder / "torch.memory_usage", record(MALLOC, 1_000_000, 512, 512, 512)))
    assert trace.devices[0].events.time_us.tolist() == [expected]
    assert trace.torch_version == "2.13.0"


def test_another_version_is_refused(tmp_path):
    good = record(MALLOC, 1, 512, 512, 512)
    with pytest.raises(RefusedFile, match="another version"):
        load(write(tmp_path / "torch.memory_usage", good, b"\x04" + good[1:]))
    with pytest.raises(RefusedFile, match="no memory events"):
        load(write(tmp_path / "torch.memory_usage", good[:40]))
