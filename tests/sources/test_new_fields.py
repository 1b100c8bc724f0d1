"""Fields that newer versions of PyTorch add to snapshots are read, shown in stacks and labels, and written back."""

from __future__ import annotations

import ast
import inspect
import pickle

import numpy as np
import pytest

import memdiag
from memdiag.cli.main import main
from memdiag.recorder import session
from memdiag.recorder.marks import NOWHERE, Marks
from memdiag.sources.redacted import redacted
from memdiag.sources.redacted_file import redact_content
from memdiag.sources.run_keys import unknown_keys

BASE = 1 << 40
FORWARD = [
    '  File "/home/somebody/train.py", line 40, in <module>\n    main()\n',
    '  File "/home/somebody/train.py", line 13, in forward\n    return self.up(x)\n',
]
NODE = {
    "fx_node_op": "call_function",
    "fx_node_name": "addmm_1",
    "fx_node_target": "aten.addmm.default",
    "fx_original_trace": "".join(FORWARD),
}
CALL = {"fx_node_op": "call_module", "fx_node_name": "layers_0_mlp", "fx_node_target": "layers.0.mlp"}


def frame(line, **more):
    return {"filename": "/home/somebody/train.py", "line": line, "name": "f", **more}


def generated(line, **more):
    return {"filename": f"fx_generated_{'ab12' * 4}.py", "line": line, "name": "forward", **more}


def entry(action, offset=0, size=512, frames=(), **more):
    return {
        "action": action,
        "addr": BASE + offset,
        "size": size,
        "stream": 0,
        "time_us": 5 + offset,
        "frames": list(frames),
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
    } | more


def snapshot():
    """Returns a snapshot with every field that PyTorch 2.13 to 2.15 added."""
    trace = [
        entry("segment_alloc", 0, 2 << 20),
        entry("alloc", 0, frames=[frame(1)], user_metadata="weights of layer 3"),
        entry("annotate", 0, frames=[frame(2)], user_metadata="packed for backward"),
        entry("annotate", 0, frames=[frame(2)], user_metadata="packed for backward"),
        entry("alloc", 512, forward_frames=FORWARD),
        entry("alloc", 1024, frames=[generated(7, **NODE), frame(30)], compile_context="Torch-Compiled Region: 1/0"),
        entry("alloc", 1536, frames=[generated(8, **CALL), frame(30)]),
        entry("alloc", 2048, frames=[frame(3)], internal_metadata="mallocWithAddress"),
        entry("free_requested", 0, frames=[frame(4)]),
        entry("free_completed", 0, frames=[frame(4)]),
        entry("alloc", 0, frames=[frame(5)]),
        entry("annotate", 0, frames=[frame(6)], user_metadata="second use"),
    ]
    blocks = [
        {"address": BASE + at, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": [frame(1)]}
        for at in range(0, 2560, 512)
    ]
    blocks.append(
        {"address": BASE + 2560, "size": (2 << 20) - 2560, "requested_size": 0, "state": "inactive", "frames": []}
    )
    segment = {
        "device": 0,
        "address": BASE,
        "total_size": 2 << 20,
        "allocated_size": 2560,
        "active_size": 2560,
        "requested_size": 2560,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [frame(1)],
        "blocks": blocks,
    }
    return {
        "segments": [segment],
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "max_round_threshold": -1},
        "external_annotations": [{"name": "step", "stage": "START", "device": 0, "time_us": 5}],
    }


@pytest.fixture
def written(tmp_path):
    def write(content, name="x.pickle"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(content))
        return path

    return write


def codes(trace):
    return [str(note.text) for note in trace.notes if note.code == "MD903"]


def labels_of(trace):
    return [trace.strings[label] if label >= 0 else "" for label in trace.devices[0].tensors.label.tolist()]


def sites_of(trace):
    return [trace.stacks.label(stack) for stack in trace.devices[0].tensors.stack.tolist()]


def test_every_field_is_known(written):
    assert codes(memdiag.load(written(snapshot()))) == []


def test_notes_of_the_program_label_the_tensor_that_is_live_then(written):
    labels = labels_of(memdiag.load(written(snapshot())))
    assert labels == ["weights of layer 3; packed for backward", "", "", "", "", "second use"]


def test_a_tensor_of_backward_is_named_after_its_forward_line(written):
    assert sites_of(memdiag.load(written(snapshot())))[1] == "backward of train.py:13 forward"


def test_the_forward_line_of_a_block_from_before_the_trace_is_read(written):
    content = snapshot()
    content["device_traces"] = [[]]
    content["segments"][0]["blocks"][1] |= {"frames": [], "forward_frames": FORWARD}
    assert sites_of(memdiag.load(written(content)))[1] == "backward of train.py:13 forward"


def test_a_stack_of_backward_has_its_own_frames_only(written):
    trace = memdiag.load(written(snapshot()))
    is_line = np.array([frame.line == 40 for frame in trace.stacks.frames], bool)
    stack = trace.devices[0].tensors.stack[1]
    assert any(frame.line == 40 for frame in trace.stacks[stack])
    assert not trace.stacks.with_frame(is_line)[stack]


def test_generated_code_is_named_after_its_source_and_node(written):
    sites = sites_of(memdiag.load(written(snapshot())))
    assert sites[2] == "train.py:13 forward (addmm_1)"
    assert sites[3] == "train.py:30 f (module layers.0.mlp)"  # without a source line, the caller comes first


def test_a_frame_without_a_caller_is_named_after_the_module_of_its_node(written):
    content = snapshot()
    del content["device_traces"][0][6]["frames"][1:]
    assert sites_of(memdiag.load(written(content)))[3].endswith(".py:8 forward (module layers.0.mlp)")


def test_regions_of_compiled_code_are_read(written):
    trace = memdiag.load(written(snapshot()))
    said = trace.devices[0].events.compile_context.tolist()
    assert {trace.strings[number] for number in said if number >= 0} == {"Torch-Compiled Region: 1/0"}


def test_an_export_keeps_all_of_them(written, tmp_path):
    path = written(snapshot())
    assert main(["export", str(path), "--format", "snapshot", "-o", str(tmp_path / "y.pickle")]) == 0
    again, trace = memdiag.load(tmp_path / "y.pickle"), memdiag.load(path)
    assert sites_of(again) == sites_of(trace)
    assert labels_of(again) == labels_of(trace)
    (entries,) = pickle.loads((tmp_path / "y.pickle").read_bytes())["device_traces"]
    assert [each["action"] for each in entries].count("annotate") == 3
    assert {each["compile_context"] for each in entries} == {"N/A", "Torch-Compiled Region: 1/0"}
    assert [each["internal_metadata"] for each in entries if each["internal_metadata"]] == ["mallocWithAddress"]


def test_all_of_them_are_redacted(written):
    content = snapshot()
    redact_content(content)
    assert "somebody" not in str(content)
    trace = redacted(memdiag.load(written(snapshot())))
    assert not any("somebody" in str(frame) + repr(frame) for frame in trace.stacks.frames)
    assert sites_of(trace)[2] == "train.py:13 forward (addmm_1)"


def with_unknown(place):
    """Returns a snapshot with an unknown key in one kind of dict, or an unknown word."""
    content = snapshot()
    entries, segment = content["device_traces"][0], content["segments"][0]
    block = segment["blocks"][0]
    found = {
        "top": content,
        "segment": segment,
        "block": block,
        "history": {},
        "entry": entries[1],
        "frame": entries[1]["frames"][0],
        "annotation": content["external_annotations"][0],
        "setting": content["allocator_settings"],
    }
    if place == "history":
        block["history"] = [{"addr": BASE, "real_size": 512, "frames": [], "brand_new": 1}]
    elif place == "state":
        block["state"] = "brand_new"
    elif place == "action":
        entries[7]["action"] = "brand_new"
    elif place == "stage":
        content["external_annotations"][0]["stage"] = "brand_new"
    else:
        found[place]["brand_new"] = 1
    return content


@pytest.mark.parametrize(
    "place",
    ["top", "segment", "block", "history", "entry", "frame", "annotation", "setting", "state", "action", "stage"],
)
def test_an_unknown_field_is_named_in_a_note(written, place):
    (note,) = codes(memdiag.load(written(with_unknown(place))))
    assert "'brand_new'" in note


def test_an_unknown_setting_is_shown(written):
    assert memdiag.load(written(with_unknown("setting"))).settings["brand_new"] == 1


@pytest.mark.parametrize("value", [None, 7, "text", [], [7], [None], ["no traceback"], [["x"]]])
def test_a_strange_forward_traceback_is_ignored(written, value):
    content = snapshot()
    content["device_traces"][0][4]["forward_frames"] = value
    assert sites_of(memdiag.load(written(content)))[1] == ""


OWN = {"format": 1, "backend": "cuda", "samples": []}
CARD = {"device": 0, "total_bytes": 10, "free_bytes": 5, "reserved_bytes": 1}


@pytest.mark.parametrize(
    "sample",
    [
        {"brand_new": 1},
        {"host": {"rss_bytes": 1, "brand_new": 1}},
        {"card": [CARD | {"brand_new": 1}]},
        {"processes": [{"device": 0, "bytes": {7: 1}, "brand_new": 1}]},
        {"counters": [{"device": 0, "brand_new": 1}]},
    ],
)
def test_an_unknown_key_of_a_sample_is_named_in_a_note(written, sample):
    own = OWN | {"samples": [{"t_us": 1, "when": "timer", "step": 0, **sample}]}
    (note,) = codes(memdiag.load(written(snapshot() | {"memdiag": own})))
    assert "unknown keys of the recording" in note
    assert "'brand_new'" in note


def test_an_unknown_key_of_the_recorder_is_named_in_a_note(written):
    (note,) = codes(memdiag.load(written(snapshot() | {"memdiag": OWN | {"brand_new": 1}})))
    assert "'brand_new'" in note


@pytest.mark.parametrize("key", ["host_segments", "host_traces"])
def test_pinned_memory_of_another_form_is_named_in_a_note(written, key):
    assert codes(memdiag.load(written(snapshot() | {key: None}))) == []
    (note,) = codes(memdiag.load(written(snapshot() | {key: 7})))
    assert f"'{key}'" in note


@pytest.mark.parametrize("place", ["segment", "block", "entry", "frame"])
def test_an_unknown_field_of_pinned_memory_is_named_in_a_note(written, place):
    pinned = with_unknown(place)
    content = snapshot() | {"host_segments": pinned["segments"], "host_traces": pinned["device_traces"][0]}
    (note,) = codes(memdiag.load(written(content)))
    assert "'brand_new'" in note


def test_every_key_of_the_recorder_is_known():
    (written_keys,) = (
        [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        for node in ast.walk(ast.parse(inspect.getsource(session)))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "content['memdiag']"
    )
    assert len(written_keys) > 10
    assert unknown_keys(dict.fromkeys([*written_keys, *Marks(lambda: NOWHERE).content()])) == set()
