"""A replay with the recorded settings, as a trace, equals the recording; written files read back identically."""

from __future__ import annotations

import pickle
import pickletools

import numpy as np
import pytest

from memdiag.allocator.as_snapshot import write_snapshot
from memdiag.allocator.as_trace import FORMAT, as_trace
from memdiag.allocator.calibration.calibrate import calibrate
from memdiag.allocator.calibration.from_trace import described
from memdiag.allocator.calibration.recorded_settings import recorded_settings
from memdiag.allocator.replay import replay
from memdiag.allocator.scenario import Beginning
from memdiag.analyzers.report import build_report
from memdiag.sources import load
from memdiag.trace import schema

CURVES = ("reserved", "allocated", "active", "requested")


def simulated(trace, device, *, policy=None, conf=None, keep_start=True):
    workload, limits = described(trace, device)[0], calibrate(trace, device).limits
    own = recorded_settings(trace, device)
    found = replay(
        workload,
        policy or own.policy,
        conf=own.conf if conf is None else conf,
        torch_version="2.13",
        capacity=limits.capacity_bytes,
        fraction=limits.fraction,
        log=True,
        beginning=Beginning(keep_start=keep_start),
    )
    return found, workload, as_trace(found, workload, trace, device, kept_start=keep_start)


def recorded(golden):
    trace = load(golden / "snapshot.pickle")
    return trace, [device for device in trace.devices if device.has_addresses and device.num_events]


def test_the_recorded_settings_give_the_recording_back(golden):
    trace, devices = recorded(golden)
    for device in devices:
        _, _, again = simulated(trace, device)
        new = again.device
        assert not new.anomalies
        assert new.start == device.start
        assert new.end == device.end
        for name in CURVES:
            assert new.usage[name].max(initial=0) == device.usage[name].max(initial=0)
        kinds = [
            np.bincount(d.events.action, minlength=len(schema.ACTIONS))[[0, 1, 2, 3, 4, 5, 6, 8]] for d in (device, new)
        ]
        assert kinds[0].tolist() == kinds[1].tolist()


def test_phases_names_and_stacks_are_carried_over(goldens):
    trace, (device,) = recorded(goldens / "cuda-2.13.0-recorded")
    _, _, again = simulated(trace, device, policy="expandable", conf="")
    new = again.device
    assert again.trace.format == FORMAT
    assert again.trace.bases == trace.bases
    made = np.flatnonzero(new.events.action == schema.ALLOC)
    old = again.row[made]
    assert (device.events.action[old] == schema.ALLOC).all()
    for name in ("phase", "step", "stack", "size", "time_us"):
        assert (new.events[name][made] == device.events[name][old]).all()
    mine, theirs = new.events.tensor[made], device.events.tensor[old]
    for name in ("name", "category", "lifetime", "requested_bytes", "step_free"):
        assert (new.tensors[name][mine] == device.tensors[name][theirs]).all()
    assert (new.tensors.name >= 0).any()


@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-recorded", "cuda-2.13.0-late", "cuda-2.13.0-pools", "npu-2.13.0-train", "cuda-2.13.0-streams"]
)
@pytest.mark.parametrize("policy", ["caching", "expandable", "npu"])
def test_what_is_written_is_read_as_what_it_was(goldens, tmp_path, name, policy):
    trace, (device,) = recorded(goldens / name)
    keep = policy == recorded_settings(trace, device).policy
    found, _, again = simulated(trace, device, policy=policy, conf="", keep_start=keep)
    write_snapshot(tmp_path / "x.pkl", again, found)
    back = load(tmp_path / "x.pkl")
    new = back.devices[0]
    assert back.backend == again.trace.backend
    assert not new.anomalies
    assert new.start == again.device.start
    assert new.end == again.device.usage_at(again.device.num_events - 1)
    for curve in (*CURVES, "cache", "stranded", "foreign"):
        assert (new.usage[curve] == again.device.usage[curve]).all()
    assert "MD924" in {note.code for note in build_report(back).notes}


def test_names_survive_being_written(goldens, tmp_path):
    trace, (device,) = recorded(goldens / "cuda-2.13.0-recorded")
    found, _, again = simulated(trace, device, policy="expandable", conf="")
    write_snapshot(tmp_path / "x.pkl", again, found)
    back = load(tmp_path / "x.pkl")
    new = back.devices[0]
    assert back.bases == trace.bases
    assert (new.events.step == again.device.events.step).all()
    for one, other in zip(new.tensors.name.tolist(), again.device.tensors.name.tolist(), strict=True):
        assert (one < 0) == (other < 0)
        if one >= 0 and again.device.tensors.free_requested_at[0] > 1:
            assert back.strings[one].partition(" at ")[0] == again.trace.strings[other].partition(" at ")[0]


def test_the_file_is_made_of_builtin_containers_in_protocol_4(goldens, tmp_path):
    trace, (device,) = recorded(goldens / "cuda-2.13.0-train")
    found, _, again = simulated(trace, device, policy="expandable", conf="max_split_size_mb:64")
    write_snapshot(tmp_path / "x.pkl", again, found)
    data = (tmp_path / "x.pkl").read_bytes()
    codes = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    assert codes[0] == ("PROTO", 4)
    assert not {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "NEWOBJ"} & {name for name, _ in codes}
    content = pickle.loads(data)
    assert content["memdiag"]["simulated"]["policy"] == "expandable"
    assert content["memdiag"]["simulated"]["of"] == trace.path
    assert content["allocator_settings"]["expandable_segments"] is True
    assert content["allocator_settings"]["max_split_size"] == 64 << 20
    segment = content["segments"][0]
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
