"""Traces of the PyTorch profiler are read for every version of Kineto and several devices; others are refused."""

import gzip
import json

import numpy as np
import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.chrome_trace import read, sniff
from memdiag.trace import schema


def memory(ts, size, addr=None, allocated=None, reserved=None, device=(1, 0), tid=7, name="[memory]"):
    more = {"Addr": addr, "Total Allocated": allocated, "Total Reserved": reserved}
    args = {
        "Device Type": device[0],
        "Device Id": device[1],
        "Bytes": size,
        **{k: v for k, v in more.items() if v is not None},
    }
    return {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": name, "pid": 1, "tid": tid, "ts": ts, "args": args}


def span(ts, duration, name, cat="cpu_op", tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": duration, "args": args}


def write(path, events, **top):
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return path


def codes(trace):
    return {note.code for note in trace.notes}


def test_addresses_pair_frees_and_totals_become_curves(tmp_path):
    events = [
        memory(10.5, 1024, 4096, 5120, 8192),
        memory(11.5, 2048, 8192, 7168, 8192),
        memory(12.5, -1024, 4096, 6144, 8192),
        memory(13.5, 512, 4096, 6656, 16384),
    ]
    properties = [{"id": 0, "totalGlobalMem": 1 << 34}]
    trace = read(write(tmp_path / "t.json", events, deviceProperties=properties, baseTimeNanoseconds=2_000_000))
    device = trace.devices[0]
    assert (trace.format, trace.backend, trace.complete_from_start) == ("chrome-trace", "cuda", False)
    assert device.events.action.tolist() == [schema.ALLOC, schema.ALLOC, schema.FREE_COMPLETED, schema.ALLOC]
    assert device.events.tensor.tolist() == [0, 1, 0, 2]
    assert device.events.time_us.tolist() == [2010, 2011, 2012, 2013]
    assert device.usage.allocated.tolist() == [5120, 7168, 6144, 6656]
    assert device.usage.reserved.tolist() == [8192, 8192, 8192, 16384]
    assert device.usage.active.tolist() == [-1] * 4
    assert device.usage.requested.tolist() == [-1] * 4
    assert device.start["allocated"] == 4096
    assert device.capacity_bytes == 1 << 34
    assert not device.has_addresses
    assert {"MD910", "MD911", "MD913", "MD914", "MD917"} <= codes(trace)
    assert "MD915" not in codes(trace)


def test_a_free_of_what_the_window_did_not_allocate_was_in_use_before(tmp_path):
    events = [memory(1, -1024, 4096, 0, 8192), memory(2, 512, 4096, 512, 8192)]
    device = read(write(tmp_path / "t.json", events)).devices[0]
    assert device.tensors.alloc_at.tolist() == [-1, 2]
    assert device.events.action.tolist() == [schema.FREE_REQUESTED, schema.FREE_COMPLETED, schema.ALLOC]
    assert device.tensors.free_requested_at.tolist()[0] == 0
    assert len(device.live(-1)) == 1
    assert device.start["allocated"] == 1024


def test_the_first_kineto_has_no_addresses_and_no_totals(tmp_path):
    events = [memory(1, 100), memory(2, 100), memory(3, -100), memory(4, -300), memory(5, -100)]
    trace = read(write(tmp_path / "t.json", events))
    device = trace.devices[0]
    allocs = np.flatnonzero(device.events.action == schema.ALLOC)
    frees = np.flatnonzero(device.events.action == schema.FREE_COMPLETED)
    # The newest tensor of a size is freed first; the 300 bytes are from before the trace.
    assert device.events.tensor[frees].tolist() == [device.events.tensor[allocs[1]], 0, device.events.tensor[allocs[0]]]
    assert device.start["allocated"] == 300
    assert device.usage.allocated[[0, 1, 2, -1]].tolist() == [400, 500, 400, 0]
    assert device.usage.reserved.max() == -1
    assert {"MD915", "MD917"} <= codes(trace)


def test_each_device_is_its_own_and_the_host_comes_last(tmp_path):
    events = [
        memory(1, 64, 1000, 64, 0, device=(0, -1)),
        memory(2, 512, 2000, 512, 2048, device=(1, 1)),
        memory(3, 512, 2000, 512, 2048, device=(1, 0)),
        memory(4, 64, 2000, 128, 0, device=(0, -1)),
    ]
    trace = read(write(tmp_path / "t.json", events))
    assert [(d.device, d.num_events) for d in trace.devices] == [(0, 1), (1, 1), (2, 2)]
    host = trace.devices[2]
    assert host.usage.requested.tolist() == [64, 128]
    assert host.usage.reserved.tolist() == [-1, -1]
    assert any(note.code == "MD919" and "device 2 is cpu" in note.text for note in trace.notes)


def test_a_trace_of_the_host_alone(tmp_path):
    trace = read(write(tmp_path / "t.json", [memory(1, 64, 1000, 64, 0, device=(0, -1))]))
    assert (trace.backend, trace.devices[0].device) == ("cpu", 0)
    assert "MD914" not in codes(trace)


def test_out_of_memory_is_an_event(tmp_path):
    events = [memory(1, 512, 4096, 512, 2048), memory(2, 1 << 40, None, 512, 2048, name="[OutOfMemory]")]
    device = read(write(tmp_path / "t.json", events)).devices[0]
    assert device.events.action.tolist() == [schema.ALLOC, schema.OOM]
    assert device.events.size.tolist() == [512, 1 << 40]
    assert len(device.tensors) == 1


def test_steps_and_optimizers_become_annotations(tmp_path):
    events = [
        span(100, 50, "ProfilerStep#3", "user_annotation"),
        span(110, 5, "Optimizer.step#AdamW.step", "user_annotation"),
        span(100, 50, "ProfilerStep#3", "gpu_user_annotation"),
        memory(120, 512, 4096, 512, 2048),
    ]
    trace = read(write(tmp_path / "t.json", events))
    named = [
        (trace.strings[n], s, t)
        for n, s, t in zip(*(trace.annotations[c].tolist() for c in ("name", "start", "time_us")), strict=True)
    ]
    assert named == [
        ("ProfilerStep#3", True, 100),
        ("Optimizer.step#AdamW.step", True, 110),
        ("Optimizer.step#AdamW.step", False, 115),
        ("ProfilerStep#3", False, 150),
    ]


def test_open_spans_are_the_stack_of_an_allocation(tmp_path):
    events = [
        span(0, 100, "train.py(12): step", "python_function"),
        span(10, 50, "aten::linear"),
        span(20, 20, "aten::empty"),
        span(0, 100, "other", tid=8),
        memory(25, 512, 4096, 512, 2048),
        memory(55, 512, 8192, 1024, 2048),
        memory(70, 512, 12288, 1536, 2048),
        memory(200, 512, 16384, 2048, 2048),
    ]
    trace = read(write(tmp_path / "t.json", events))
    tensors = trace.devices[0].tensors
    frames = [[frame.name for frame in trace.stacks[s]] for s in tensors.stack.tolist()]
    assert frames == [["aten::linear", "step"], ["aten::linear", "step"], ["step"], []]
    assert trace.stacks.label(int(tensors.stack[0])) == "train.py:12 step"
    assert "MD911" not in codes(trace)


def test_an_operator_may_bring_its_stack_along(tmp_path):
    events = [
        span(0, 100, "aten::add", "Operator", **{"Call stack": "lib.py(3): f;main.py(9): <module>"}),
        span(10, 10, "aten::copy_", "Operator"),
        memory(15, 512),
    ]
    trace = read(write(tmp_path / "t.json", events))
    assert [str(f) for f in trace.stacks[0]] == ["aten::copy_", "aten::add", "lib.py:3 f", "main.py:9 <module>"]


def test_events_are_put_in_order_of_time(tmp_path):
    events = [memory(3, -512, 4096, 0, 2048), memory(1, 512, 4096, 512, 2048)]
    assert read(write(tmp_path / "t.json", events)).devices[0].events.action.tolist() == [
        schema.ALLOC,
        schema.FREE_COMPLETED,
    ]


def test_unusable_memory_events_are_counted(tmp_path):
    broken = memory(1, 512, 4096, 512, 2048)
    events = [
        {**broken, "args": args}
        for args in ({}, {"Bytes": "many", "Device Type": 1, "Device Id": 0}, None, {**broken["args"], "Bytes": 2**60})
    ]
    trace = read(write(tmp_path / "t.json", [*events, broken, {**broken, "ts": None}]))
    assert trace.num_events == 1
    assert any(note.code == "MD916" and "5 memory events" in note.text for note in trace.notes)


def test_back_ends_that_write_no_reserved_bytes(tmp_path):
    trace = read(write(tmp_path / "t.json", [memory(1, 512, 4096, 512, 0)]))
    assert trace.devices[0].usage.reserved.tolist() == [-1]


def test_gzip_and_a_value_longer_than_the_window(tmp_path):
    padding = [span(i, 1, "x" * 700_000) for i in range(4)]
    file = tmp_path / "t.json.gz"
    file.write_bytes(
        gzip.compress(
            json.dumps({"a": "b" * 3_000_000, "traceEvents": [*padding, memory(9, 512, 4096, 512, 2048)]}).encode()
        )
    )
    assert load(file).num_events == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"traceEvents": []}', "no list of events"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}',
            "without memory events (1 event)",
        ),
        ('[{"ph": "X", "name": "a", "ts": "1.5", "dur": 1}]', "Ascend trace_view"),
        ('[{"elem": "x", "timesteps": [1], "offsets": [0]}]', "no list of events"),
        ('{"traceEvents": [1]}', "something else than events"),
        ('{"traceEvents": [{"ph": "X"}', "cut"),
        ('{"traceEvents": [{"ph": "X"}]} more', "more text"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a" 1}', "expected ':'"),
        ('{"baseTimeNanoseconds": "x", "traceEvents": [' + json.dumps(memory(1, 512)) + "]}", "could not convert"),
    ],
)
def test_what_is_refused(tmp_path, content, reason):
    file = tmp_path / "t.json"
    file.write_text(content)
    with pytest.raises(RefusedFile) as refusal:
        read(file)
    assert reason in refusal.value.message
    assert "profile_memory=True" in refusal.value.hint


def test_ascend_traces_are_told_where_their_memory_is(tmp_path):
    file = tmp_path / "trace_view.json"
    file.write_text('[{"ph": "X", "name": "a", "ts": "1.5", "dur": 1}]')
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert "operator_memory.csv" in refusal.value.hint


def test_sniff():
    assert sniff(b' {"a": 1}')
    assert sniff(b"\xef\xbb\xbf[\n{")
    assert not sniff(b"[rank0]: Traceback")
    assert not sniff(b"[2024-01-01 10:00:00] hello")
    assert not sniff(b"a,b")
