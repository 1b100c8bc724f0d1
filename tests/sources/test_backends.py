"""Snapshots of different backends are told apart by their settings and frames."""

from __future__ import annotations

import pickle

import pytest

import memdiag
from memdiag.allocator.calibration.recorded_settings import recorded_settings

# The settings of torch.xpu's snapshots (torch/csrc/xpu/Module.cpp), and of torch.cuda's.
XPU = {"PYTORCH_ALLOC_CONF": "", "expandable_segments": False}
CUDA = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}


def snapshot(settings, filename="/x/train.py", name="f"):
    frames = [{"filename": filename, "line": 0 if filename.endswith(".so") else 3, "name": name}]
    entries = [
        {"action": action, "addr": 1 << 40, "size": size, "stream": 0, "time_us": 5, "frames": frames}
        for action, size in (("segment_alloc", 2 << 20), ("alloc", 512))
    ]
    return {"segments": [], "device_traces": [entries], "allocator_settings": settings}


@pytest.mark.parametrize(
    ("content", "backend"),
    [
        (snapshot(CUDA), "cuda"),
        (snapshot(XPU), "xpu"),
        (snapshot({}, "/usr/lib/python3/dist-packages/torch/xpu/memory.py"), "xpu"),
        (snapshot(CUDA, "/opt/torch/lib/libtorch_hip.so", "at::native::empty"), "hip"),
        (snapshot(CUDA, "", "c10::hip::HIPCachingAllocator::malloc"), "hip"),
        (snapshot({}, "/usr/lib/python3/dist-packages/torch/mtia/__init__.py"), "mtia"),
        (snapshot({}, "/usr/lib/python3/dist-packages/torch_npu/npu/memory.py"), "npu"),
    ],
)
def test_a_snapshot_is_called_by_its_backend(tmp_path, content, backend):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(content))
    assert memdiag.load(path).backend == backend


@pytest.mark.parametrize("settings", [{}, {"expandable_segments": True}])
def test_only_the_devices_of_a_merged_file_with_expandable_segments_split_like_them(tmp_path, settings):
    size, request = 20 << 20, 39 << 19

    def device(reserve):
        calls = [(reserve, size), ("alloc", request), ("free_requested", request), ("free_completed", request)]
        common = {"addr": 1 << 30, "stream": 0, "time_us": 1, "frames": []}
        return [{"action": action, "size": each, **common} for action, each in calls]

    path = tmp_path / "merged.pickle"
    traces = [device("segment_alloc"), device("segment_map")]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": traces, "allocator_settings": settings}))
    trace = memdiag.load(path)
    assert [each.tensors.block_bytes.tolist() for each in trace.devices] == [[size], [request]]
    assert [recorded_settings(trace, each).conf for each in trace.devices] == ["", "expandable_segments:True"]
