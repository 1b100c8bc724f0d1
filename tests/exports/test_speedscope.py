"""Flame graphs have speedscope's file format and the bytes of the trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.exports import speedscope
from memdiag.exports.model import Wanted
from memdiag.trace.moments import choose_moment
from memdiag.trace.stacks import Frame, Stacks

GOLDENS = Path(__file__).parents[1] / "goldens"
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def exported(trace, tmp_path, **wanted):
    (path,) = speedscope.write(trace, tmp_path / "t.speedscope.json", Wanted(**wanted))
    content = json.loads(path.read_text())
    is_speedscope(content)
    return content


def is_speedscope(content):
    """Checks the requirements of speedscope's file-format schema for files of sampled profiles."""
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert content.keys() <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    frames = content["shared"]["frames"]
    for frame in frames:
        assert frame.keys() <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
        assert isinstance(frame.get("file", ""), str)
        assert isinstance(frame.get("line", 1), int)
    assert 0 <= content["activeProfileIndex"] < len(content["profiles"])
    for profile in content["profiles"]:
        assert profile.keys() == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled"
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
        assert all(sample for sample in profile["samples"])
        assert all(weight > 0 for weight in profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])


@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-train", "cuda-2.13.0-cpp-frames", "cuda-2.13.0-two-devices", "cuda-2.13.0-no-trace"]
)
def test_bytes_are_those_of_the_trace(name, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    content = exported(trace, tmp_path)
    for device in trace.devices:
        mine = [
            each
            for each in content["profiles"]
            if len(trace.devices) == 1 or each["name"].startswith(f"device {device.device}:")
        ]
        at = choose_moment(device).event
        assert mine[0]["endValue"] == device.usage_at(at)["active"]
        assert mine[-1]["endValue"] == int(device.tensors.block_bytes.sum())


def test_stacks_stand_outermost_first(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-train" / "snapshot.pickle")
    content = exported(trace, tmp_path)
    (device,) = trace.devices
    stacks = {tuple(str(frame) for frame in trace.stacks[stack]) for stack in np.unique(device.tensors.stack).tolist()}
    for sample in content["profiles"][-1]["samples"]:
        frames = [content["shared"]["frames"][frame] for frame in reversed(sample)]
        told = tuple(
            f"{frame['file']}:{frame['line']} {frame['name']}" if "line" in frame else frame["name"] for frame in frames
        )
        assert told in stacks or told == ("(no call stack)",)


def test_hostile_frames_stay_text(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-oom" / "snapshot.pickle")
    stacks, _ = Stacks.from_lists(
        [[Frame("</script>\x00\u202e" + "B" * 10_000, 3, "=cmd\x1b")]] * max(len(trace.stacks), 1)
    )
    (device,) = trace.devices
    tensors = device.tensors.replace(stack=np.zeros(len(device.tensors), np.int32))
    content = exported(replace(trace, stacks=stacks, devices=(replace(device, tensors=tensors),)), tmp_path)
    (frame,) = content["shared"]["frames"]
    assert (frame["name"] + frame["file"]).isprintable()
    assert len(frame["file"]) <= 500


def test_a_trace_without_tensors_is_refused(tmp_path):
    with pytest.raises(MemdiagError, match="no tensors"):
        exported(memdiag.load(GOLDENS / "cuda-2.13.0-empty" / "snapshot.pickle"), tmp_path)
