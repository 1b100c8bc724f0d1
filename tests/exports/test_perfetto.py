"""Perfetto traces: counters are the curves, tensors are non-overlapping slices per lane, and names are escaped."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.exports import perfetto
from memdiag.exports.model import Wanted, nanoseconds
from memdiag.trace import schema
from memdiag.views.plot_frame import settled

GOLDENS = Path(__file__).parents[1] / "goldens"
KINDS = [
    "cuda-2.13.0-train",
    "cuda-2.13.0-oom",
    "cuda-2.13.0-late",
    "cuda-2.13.0-recorded",
    "npu-2.13.0-workspace",
    "cuda-2.13.0-two-devices",
]


def exported(trace, tmp_path, name="t.perfetto.json", **wanted):
    (path,) = perfetto.write(trace, tmp_path / name, Wanted(**wanted))
    text = path.read_bytes()
    return json.loads(gzip.decompress(text) if name.endswith(".gz") else text)


def nanos(event):
    """Returns a time stamp in nanoseconds, exactly: it has at most three decimals."""
    return round(event["ts"] * 1000)


@pytest.mark.parametrize("name", KINDS)
def test_counters_are_the_curves(name, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    events = exported(trace, tmp_path)["traceEvents"]
    for device in trace.devices:
        times, _ = nanoseconds(device)
        for curve in perfetto.CURVES:
            mine = [
                each
                for each in events
                if each["ph"] == "C" and each["name"] == curve and each["pid"] == device.device + 1
            ]
            at = np.array([nanos(each) for each in mine])
            value = np.array([each["args"]["bytes"] for each in mine])
            assert (np.diff(at) >= 0).all()
            assert (value[np.searchsorted(at, times, side="right") - 1] == device.usage[curve])[
                np.append(np.diff(times) > 0, True)
            ].all()


@pytest.mark.parametrize("name", KINDS)
def test_the_fragmentation_counter_splits_what_is_reserved_beyond_requests(name, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    events = exported(trace, tmp_path)["traceEvents"]
    for device in trace.devices:
        times, _ = nanoseconds(device)
        mine = [
            each
            for each in events
            if each["ph"] == "C" and each["name"] == "fragmentation" and each["pid"] == device.device + 1
        ]
        assert [list(each["args"]) for each in mine] == [["rounding", "pending", "stranded", "foreign", "cache"]] * len(
            mine
        )
        at = np.array([nanos(each) for each in mine])
        last = np.searchsorted(at, times, side="right") - 1
        last_of_its_time = np.append(np.diff(times) > 0, True)
        whole = np.array([sum(each["args"].values()) for each in mine])
        assert (whole[last] == device.usage.reserved - device.usage.requested)[last_of_its_time].all()
        usage = device.usage.take(settled(device))
        for part in ("stranded", "foreign", "cache"):
            assert (np.array([each["args"][part] for each in mine])[last] == usage[part])[last_of_its_time].all()
        frees = (device.events.action[:-1] == schema.FREE_REQUESTED) & (
            device.events.action[1:] == schema.FREE_COMPLETED
        )
        assert frees.any()
        waits = {each["args"]["pending"] for each in mine} - {0}
        assert bool(waits) == bool((usage.active > usage.allocated).any()), (
            "a free that is completed at once waits for nothing"
        )


def test_without_addresses_the_counter_has_only_what_is_known(tmp_path):
    trace = memdiag.load(GOLDENS / "cpu-2.13.0-recorded" / "snapshot.pickle")
    values = [
        each["args"]
        for each in exported(trace, tmp_path)["traceEvents"]
        if each["ph"] == "C" and each["name"] == "fragmentation"
    ]
    assert all(value.keys() <= {"rounding", "pending"} for value in values)
    assert all(part >= 0 for value in values for part in value.values())


@pytest.mark.parametrize("name", KINDS)
def test_every_tensor_is_a_slice_and_lanes_do_not_overlap(name, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    lanes = defaultdict(list)
    for each in exported(trace, tmp_path)["traceEvents"]:
        if each["ph"] in "nbe":
            lanes[each["cat"], each["id"]].append(each)
    seen = 0
    for (category, _), events in lanes.items():
        assert "".join(each["ph"] for each in events) == "n" + "be" * (len(events) // 2)
        assert events[0]["name"] == category.replace("_", " ")
        times = [nanos(each) for each in events[1:]]
        assert times == sorted(times)
        seen += len(events) // 2
    assert seen == trace.num_tensors
    begun = [each["args"] for events in lanes.values() for each in events if each["ph"] == "b"]
    assert sum(each["bytes"] for each in begun) == sum(
        int(device.tensors.block_bytes.sum()) for device in trace.devices
    )


@pytest.mark.parametrize("name", KINDS)
def test_every_event_has_what_its_kind_must_have(name, tmp_path):
    """Every event has the fields that the published format description requires for its kind.

    chrome://tracing drops asynchronous events without a name, even end events.
    """
    content = exported(memdiag.load(GOLDENS / name / "snapshot.pickle"), tmp_path)
    assert "displayTimeUnit" not in content, "times are microseconds; some viewers have taken it for their unit"
    needed = {
        "M": {"args"},
        "X": {"ts", "tid", "dur", "cat"},
        "i": {"ts", "s", "cat"},
        "C": {"ts", "args"},
        "b": {"ts", "id", "cat"},
        "n": {"ts", "id", "cat"},
        "e": {"ts", "id", "cat"},
    }
    open_slices = {}
    for each in content["traceEvents"]:
        assert {"ph", "pid", "name"} | needed[each["ph"]] <= each.keys()
        if each["ph"] == "b":
            open_slices[each["cat"], each["id"]] = each["name"]
        elif each["ph"] == "e":
            assert open_slices.pop((each["cat"], each["id"])) == each["name"]
    assert not open_slices


def test_phases_steps_and_failures(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-train" / "snapshot.pickle")
    (device,) = trace.devices
    content = exported(trace, tmp_path)
    spans = [each for each in content["traceEvents"] if each["ph"] == "X"]
    assert sum(each["args"]["events"] for each in spans if each["cat"] == "phase") == int(
        (device.events.phase > 0).sum()
    )
    steps = [each["name"] for each in spans if each["cat"] == "step"]
    assert steps == [f"step {number}" for number in np.unique(device.events.step[device.events.step >= 0]).tolist()]
    assert content["otherData"]["exporter"].startswith("memdiag ")
    for name in ("oom", "retries"):
        trace = memdiag.load(GOLDENS / f"cuda-2.13.0-{name}" / "snapshot.pickle")
        (device,) = trace.devices
        instants = [each["name"] for each in exported(trace, tmp_path)["traceEvents"] if each["ph"] == "i"]
        assert instants.count("out of memory") == int((device.events.action == schema.OOM).sum())
        assert instants.count("retry") == int((device.references.retried & ~device.references.failed).sum())


def test_small_tensors_and_devices_can_be_left_out(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-two-devices" / "snapshot.pickle")
    events = exported(trace, tmp_path, device=1, min_bytes=1 << 20)["traceEvents"]
    assert {each["pid"] for each in events} == {2}
    sizes = [each["args"]["bytes"] for each in events if each["ph"] == "b"]
    assert min(sizes) >= 1 << 20
    assert len(sizes) == int((trace.devices[1].tensors.block_bytes >= 1 << 20).sum())
    with pytest.raises(MemdiagError, match="device 7"):
        exported(trace, tmp_path, device=7)


def test_packed_it_is_the_same_and_the_same_each_time(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle")
    plain = exported(trace, tmp_path)
    assert exported(trace, tmp_path, "t.json.gz") == plain
    first = (tmp_path / "t.json.gz").read_bytes()
    exported(trace, tmp_path, "t.json.gz")
    assert (tmp_path / "t.json.gz").read_bytes() == first


def test_hostile_names_stay_names(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle")
    (device,) = trace.devices
    hostile = '"},{"ph":"X</script>\x1b[31m\u202e\n' + "A" * 100_000
    named = device.tensors.replace(name=np.zeros(len(device.tensors), np.int32))
    trace = replace(trace, strings=(hostile,), devices=(replace(device, tensors=named),), path=hostile)
    content = exported(trace, tmp_path)
    names = {each["name"] for each in content["traceEvents"] if each["ph"] == "b"}
    assert len(names) == 1
    (name,) = names
    assert name.isprintable()
    assert len(name) <= 200
    assert len(content["otherData"]["source"]) <= 200


def test_without_times_an_event_is_a_microsecond(tmp_path):
    trace = memdiag.load(GOLDENS / "npu-2.13.0-train" / "snapshot.pickle")
    (device,) = trace.devices
    assert (device.events.time_us < 0).all()
    times, first = nanoseconds(device)
    assert (times == np.arange(device.num_events) * 1000).all()
    assert first is None
    assert "microsecond" in exported(trace, tmp_path)["otherData"]["time"]["0"]


def test_a_state_without_events_is_refused(tmp_path):
    with pytest.raises(MemdiagError, match="contains no events"):
        exported(memdiag.load(GOLDENS / "cuda-2.13.0-no-trace" / "snapshot.pickle"), tmp_path)
    assert list(tmp_path.iterdir()) == []
