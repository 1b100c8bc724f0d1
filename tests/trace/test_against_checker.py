"""Traces of real allocators agree with an independent reconstruction (tests/checker.py) in every tensor and event."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from memdiag.sources import load
from memdiag.trace.model import Trace
from tests.checker import Checker
from tests.intervals import Contradiction
from tests.trace.against import compare, sizes_of

# Real snapshots of many versions and programs that the checker processes quickly. Some programs began long before the
# trace.
SHARED = (
    "snapshots/Ascend__msinsight__scripts__MemSnapDump__test__test-data__snapshot_expandable.pkl",
    "snapshots/Charan6924__assignment2-systems__cs336_systems__memory_snapshot.pickle",
    "snapshots/Charran78__DocuBox__dump_snapshot.pickle",
    "snapshots/Da1sypetals__tomi__snapshots__snapshot.pickle",
    "snapshots/JasperSolt__EoR_NN__snapshot.pickle",
    "snapshots/Maphsge4__select_n__snapshot@5a601013.pickle",
    "snapshots/Muduard__LayoutEditing__memory_snapshot.pkl",
    "snapshots/NiuHuangxiaozi__assignment2-systems__cs336_systems__profile_memory__forward_memory_snapshot_200.pickle",
    "snapshots/Okazaki-Yumemi__CS336__assignments__a2-systems__profiles__memory_small_forward_128.pickle",
    "snapshots/Yiyi-philosophy__LLM-inference__1.3b_snapshot@66f06b43.pickle",
    "snapshots/albi2__thesis-text-to-SQL__dump_snapshot@27df9f5b.pickle",
    "snapshots/bolongcheng__assignment2-systems__benchmarks__memory_snapshot_xl_fwd_cl128_dtypetorch.float32.pickle",
    "snapshots/kkaitlyn111__cs336-a2-systems__memory_small_forward.pickle",
    "snapshots/mryab__efficient-dl-systems__week06_dl_arithmetic__seminar__cross_entropy__liger_ce_snapshot.pickle",
    "snapshots/shreyansh26__MLSys-Experiments__model_memory_usage__profile_grad.pkl",
    "snapshots/silmont2000__assignment2-systems__mem_snapshot.pickle",
    "snapshots/silmont2000__assignment2-systems__memory_forward_bf16_128.pickle",
    "snapshots/tonghuikang__optimizer-memory-profiles__snapshot.html__embedded.pickle",
    "npu-samples/fsdp0.pickle",
    "npu-samples/train.pickle",
)
CONTRADICT = (
    "snapshots/drisspg__transformer_nuggets__test__data__mini_snapshot.pickle",
    "snapshots/facebookresearch__mosaic__test__snapshots__output.pickle",
)


def _checkers(path: Path, trace: Trace) -> list[Checker]:
    raw: Any = pickle.loads(path.read_bytes())
    segments = raw if isinstance(raw, list) else raw["segments"]
    traces = [] if isinstance(raw, list) else raw.get("device_traces", [])
    made = []
    for device in trace.devices:
        entries = traces[device.device] if device.device < len(traces) else []
        mine = [s for s in segments if s.get("device", 0) == device.device]
        made.append(Checker(*without_workspace(entries, mine), sizes_of(trace.layout)))
    return made


def without_workspace(
    entries: list[dict[str, Any]], segments: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns entries and segments without torch_npu's workspace memory, which belongs to another allocator."""
    entries = list(entries)
    outside = set()
    for number in [n for n, entry in enumerate(entries) if entry["action"] == "workspace_snapshot"]:
        outside.add(entries[number + 1]["addr"])
        entries[number + 1 : number + 3] = [
            {**entry, "action": "workspace_snapshot"} for entry in entries[number + 1 : number + 3]
        ]
    return entries, [s for s in segments if s["address"] not in outside or s["allocated_size"]]


def test_goldens_agree_with_the_checker_at_every_event(golden):
    if golden.name.startswith("cpu-"):
        pytest.skip("PyTorch's CPU allocator has no segments: the checker is one of caching allocators")
    path = golden / "snapshot.pickle"
    trace = load(path)
    for device, checker in zip(trace.devices, _checkers(path, trace), strict=True):
        compare(device, checker)
        assert not device.anomalies


def test_the_example_agrees_with_the_checker_at_many_events(root):
    path = root / "examples" / "gpt-train.pickle"
    trace = load(path)
    (device,), (checker,) = trace.devices, _checkers(path, trace)
    compare(device, checker, range(-1, device.num_events, 53))


@pytest.mark.parametrize("name", SHARED)
def test_real_snapshots_agree_with_the_checker_at_many_events(shared, name):
    path = shared / "data" / name
    trace = load(path)
    for device, checker in zip(trace.devices, _checkers(path, trace), strict=True):
        compare(device, checker, range(-1, device.num_events, max(device.num_events // 50, 1)))


@pytest.mark.parametrize("name", CONTRADICT)
def test_the_checker_finds_the_contradictions_that_memdiag_notes(shared, name):
    path = shared / "data" / name
    trace = load(path)
    with pytest.raises(Contradiction):
        _checkers(path, trace)
    assert any(note.code == "MD901" for note in trace.notes)
