"""Writes the seeds of the fuzzer: small invented inputs of every format, with the special cases that its reader
handles.

    python -m tests.fuzz.seeds        # writes tests/fuzz/seeds/<source>/

Mutations reach only code near some seed, so add a line here for every new branch in a reader.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.forms import CODECS, dump_pickle

HERE = Path(__file__).parent / "seeds"
MIB = 1 << 20
BASE = 0x7F00_0000_0000


def _frames(*lines: int) -> list[dict[str, Any]]:
    return [{"filename": "train.py", "line": line, "name": f"f{line}"} for line in lines]


def snapshot(generation: str, *, expandable: bool = False, npu: bool = False) -> dict[str, Any]:
    """Returns a snapshot with two segments, a wait for a stream, a failure and a block from before the trace."""
    segment, page = ("segment_map", "segment_unmap") if expandable else ("segment_alloc", "segment_free")
    big, small, other = BASE, BASE + 64 * MIB, BASE + 128 * MIB
    model, step = _frames(7, 3), _frames(9, 3)
    calls: list[tuple[str, int, int, int, Any]] = [
        ("free_requested", big + 18 * MIB, MIB + MIB // 2, 0, step), ("free_completed", big + 18 * MIB, MIB + MIB // 2, 0, step),
        (segment, small, 2 * MIB, 0, model), ("alloc", small, 1000, 0, model), ("alloc", small + 1024, 700_000, 0, step),
        ("alloc", big, 6 * MIB, 0, model), ("free_requested", small, 1000, 0, step),
        (segment, other, 20 * MIB, 5, model), ("alloc", other, 12 * MIB, 5, model), ("free_completed", small, 1000, 0, []),
        ("free_requested", big, 6 * MIB, 0, step), ("free_completed", big, 6 * MIB, 0, step),
        ("oom", 0, 90 * MIB, 0, step),
        ("free_requested", other, 12 * MIB, 5, []), ("free_completed", other, 12 * MIB, 5, []), (page, other, 20 * MIB, 5, []),
        ("alloc", big, 3 * MIB, 0, model), ("free_requested", big, 3 * MIB, 0, model),
    ]  # fmt: skip
    trace = []
    for index, (action, addr, size, stream, frames) in enumerate(calls):
        entry: dict[str, Any] = {"action": action, "addr": addr, "size": size, "stream": stream, "frames": frames}
        if action == "oom":
            entry["device_free"] = 5 * MIB
        if generation >= "2.1" and not npu:
            entry["time_us"] = 1_700_000_000_000_000 + 10 * index
        if generation >= "2.10":
            entry |= {"compile_context": "N/A", "user_metadata": ""}
        if generation >= "2.13":
            entry |= {"pool_id": (0, 1 if stream else 0), "forward_frames": []}
        trace.append(entry)

    def block(address: int, size: int, state: str, requested: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
        if generation == "2.0":
            history = [{"addr": address, "frames": frames, "real_size": requested}]
            return {"size": size, "state": state, **({"history": history} if state != "inactive" else {})}
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}

    segments = [
        {
            "device": 0, "address": big, "total_size": 20 * MIB, "allocated_size": 2 * MIB, "active_size": 5 * MIB, "stream": 0,
            "segment_type": "large",
            "blocks": [
                block(big, 3 * MIB, "active_pending_free", 3 * MIB, model), block(big + 3 * MIB, 13 * MIB, "inactive", 0, []),
                block(big + 16 * MIB, 2 * MIB, "active_allocated", 2 * MIB, step), block(big + 18 * MIB, 2 * MIB, "inactive", 0, []),
            ],
        },
        {
            "device": 0, "address": small, "total_size": 2 * MIB, "allocated_size": 700_416, "active_size": 700_416, "stream": 0,
            "segment_type": "small",
            "blocks": [
                block(small, 1024, "inactive", 0, []), block(small + 1024, 700_416, "active_allocated", 700_000, step),
                block(small + 701_440, 2 * MIB - 701_440, "inactive", 0, []),
            ],
        },
    ]  # fmt: skip
    if generation >= "2.1":
        for row in segments:
            row |= {
                "requested_size": row["active_size"],
                "segment_pool_id": (0, 0),
                "is_expandable": expandable,
                "frames": model,
            }
    made: dict[str, Any] = {"segments": segments, "device_traces": [trace, []]}
    if generation >= "2.5" and not npu:
        made["allocator_settings"] = {
            "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable},roundup_power2_divisions:[256:1,>:4]", "max_split_size": -1,
            "garbage_collection_threshold": 0.0, "expandable_segments": expandable, "roundup_power2_divisions": {"1": 0, "2": 4},
        }  # fmt: skip
        made["external_annotations"] = [
            {"name": name, "stage": stage, "device": 0, "time_us": 1_700_000_000_000_000 + at}
            for name, stage, at in (("ProfilerStep#0", "START", 0), ("Optimizer.step#SGD.step", "START", 55), ("Optimizer.step#SGD.step", "END", 75),
                                    ("ProfilerStep#0", "END", 160))
        ]  # fmt: skip
    if npu:
        trace[:0] = [
            {"action": action, "addr": BASE - 64 * MIB, "size": 20 * MIB, "stream": 0}
            for action in ("workspace_snapshot", "segment_alloc", "alloc")
        ]
        for index, row in enumerate([*trace, *segments]):
            row["frames"] = [{"filename": "torch_npu/npu/memory.py", "line": index, "name": "f"}]
    return made


def _packed(*rows: tuple[int, ...], names: tuple[str, ...]) -> dict[str, bytes]:
    columns = zip(*rows, strict=True)
    return {
        name: b"".join(value.to_bytes(8, "little", signed=True) for value in column)
        for name, column in zip(names, columns, strict=True)
    }


def recorded(*, counted: bool) -> dict[str, Any]:
    """Returns a snapshot with memdiag's marks: two steps with phases, modules, tensors, by time or by block counts."""
    # tenths, allocs, frees
    moments = [
        (1, 0, 0),
        (2, 1, 1),
        (3, 3, 2),
        (4, 4, 3),
        (5, 4, 4),
    ]
    place = [
        (-1 if counted else (1_700_000_000_000_000 + 32 * tenth) * 1000, allocs, frees)
        for tenth, allocs, frees in moments
    ]
    told = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]  # initialisation, forward, backward, optimizer; the end of a step
    marks = [(time, kind, value, 0, allocs if counted else -1, frees if counted else -1)
             for (time, allocs, frees), (kind, value) in zip(place, told, strict=True)]  # fmt: skip
    modules = [(time, name, 0, allocs if counted else -1, frees if counted else -1)
               for (time, allocs, frees), name in zip(place, (3, 4, 3, -1, 3), strict=True)]  # fmt: skip
    seen = [
        (0, BASE + 64 * MIB + 1024, 1, 0, 1, 4),
        (0, BASE + 16 * MIB, 2, 1, 3, 3),
        (0, BASE + 17 * MIB, 3, 2, 4, 4),
        (0, BASE, 5, 5, 1, 1),
    ]
    return {
        **snapshot("2.1" if counted else "2.13", npu=counted),
        "memdiag": {
            "format": 1, "backend": "npu" if counted else "cuda", "torch_version": "2.13.0", "rank": 0, "world": 2, "pid": 7, "argv": ["train.py"],
            "reason": "exit", "steps": 1, "window": [0, 9], "max_events": 18, "has_times": not counted, "taken_over": "restarted",
            "phantom": False, "ooms": [], "capacity_bytes": {0: 1 << 36}, "counts": {0: {"allocs": 5, "frees": 5, "retries": 0, "ooms": 1}},
            "fraction": 1.0, "settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}, "unknown_frees": 2, "paused_seconds": 1.5,
            "names": ["layers.0.up.weight", "grad of layers.0.up.weight", "exp_avg of layers.0.up.weight", "layers.0", "layers.0.up", "input of GPT"],
            "marks": _packed(*marks, names=("time_ns", "kind", "value", "device", "allocs", "frees")),
            "modules": _packed(*modules, names=("time_ns", "name", "device", "allocs", "frees")),
            "tensors": _packed(*seen, names=("device", "addr", "category", "name", "first", "last")),
        },
    }  # fmt: skip


def _snapshots() -> dict[str, tuple[Any, int | None]]:
    whole = snapshot("2.13")
    own = {
        **snapshot("2.10"),
        "memdiag": {"version": 1, "backend": "cuda", "capacity_bytes": 1 << 36, "torch_version": "2.10.0"},
        "extra": [1],
    }
    return {
        "v2.0.pickle": (snapshot("2.0"), 4), "v2.1.pickle": (snapshot("2.1"), 2), "v2.5.pickle": (snapshot("2.5"), 3),
        "v2.13.pickle": (whole, 4), "expandable.pickle": (snapshot("2.13", expandable=True), 5), "npu.pickle": (snapshot("2.1", npu=True), 4),
        "own.pickle": (own, 4), "recorded.pickle": (recorded(counted=False), 4), "recorded-npu.pickle": (recorded(counted=True), 4),
        "list.pickle": (whole["segments"], 1), "text.pickle": (whole, 0), "traces.pickle": ({"device_traces": whole["device_traces"]}, 4),
        "entries.pickle": ({"segments": [], "device_traces": whole["device_traces"][0]}, 4), "empty.pickle": ({"segments": [], "device_traces": []}, 4),
        "memoless.pickle": (whole, None),
    }  # fmt: skip


def _operator_memory() -> list[list[Any]]:
    head = ["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Active Release Time(us)", "Duration(us)", "Active Duration(us)",
            "Allocation Total Allocated(MB)", "Allocation Total Reserved(MB)", "Allocation Total Active(MB)", "Release Total Allocated(MB)",
            "Release Total Reserved(MB)", "Release Total Active(MB)", "Stream Ptr", "Device Type"]  # fmt: skip
    rows = [
        [
            "aten::empty",
            512,
            "1700000000000001.100",
            "1700000000000009.2",
            "1700000000000009.2",
            8.1,
            8.1,
            0.5,
            20,
            0.5,
            0,
            20,
            0,
            187651,
            "NPU:0",
        ],
        ["aten::mm", 2048.5, "1700000000000002.5", "", "", "", "", 2.5, 20, 2.5, "", "", "", 187651, "NPU:0"],
        ["aten::add", 1, "", 1700000000000003, 1700000000000004, "", "", "", "", "", 2, 20, 2, 0, "NPU:1"],
        ["cpu", 4, 1700000000000001, 1700000000000002, "", 1, "", "", "", "", "", "", "", "", "CPU"],
    ]
    return [head, *rows]


def _memory_record() -> list[list[Any]]:
    return [
        ["Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Total Active(MB)", "Stream Ptr", "Device Type"],
        ["PTA", "1700000000000001.1", 0.5, 20.0, 0.5, 187651, "NPU:0"], ["PTA", "1700000000000002.5", 2.5, 20.0, 2.5, 187651, "NPU:0"],
        ["GE", 1700000000000003, 1, 2, "", "", "NPU:0"], ["PTA+GE", 1700000000000004, 3.5, 22, "", "", "NPU:0"],
        ["APP", 1700000000000005, "", 900, "", "", "NPU:0"], ["WORKSPACE", 1700000000000006, 1, 1, 1, "", "NPU:1"],
    ]  # fmt: skip


def _memscope() -> list[list[Any]]:
    head = [
        "ID",
        "Event",
        "Event Type",
        "Name",
        "Timestamp(ns)",
        "Process Id",
        "Thread Id",
        "Device Id",
        "Ptr",
        "Attr",
        "Call Stack(Python)",
        "Call Stack(C)",
    ]
    return [
        head,
        [1, "SYSTEM", "START_TRACE", "", 100, 7, 8, "N/A", "N/A", "{total:68719476736}", "", ""],
        [2, "MALLOC", "HAL", "N/A", 200, 7, 8, 0, "0x12c000000000", "{allocation_id:1,addr:0x12c000000000,size:20971520,owner:PTA}", "", ""],
        [3, "MALLOC", "PTA", "aten::mm", 210, 7, 8, 0, "0x12c000000000", '"{allocation_id:2,addr:0x12c000000000,size:4096,total:20971520,used:4096,owner:PTA@weight}"',
         "train.py(12): forward\ntrain.py(3): <module>", "libtorch.so [0x1f]"],
        [4, "OP_LAUNCH", "ATEN_START", "aten::mm", 205, 7, 8, 0, "N/A", "", "", ""], [5, "OP_LAUNCH", "ATEN_END", "aten::mm", 220, 7, 8, 0, "N/A", "", "", ""],
        [6, "MSTX", "RANGE_START", "step 1", 190, 7, 8, 0, "N/A", "", "", ""], [7, "MSTX", "RANGE_END", "", 400, 7, 8, 0, "N/A", "", "", ""],
        [8, "FREE", "PTA", "N/A", 300, 7, 8, 0, "0x12c000000000", "{addr:0x12c000000000,size:4096,total:20971520,used:0}", "", ""],
        [9, "SNAPSHOT", "OOM_TRIGGER", "", 310, 7, 8, 0, "N/A", "{req_size:99999999}", "", ""],
        [10, "MALLOC", "HOST", "N/A", 320, 7, 8, "host", 5000, "{addr:5000,size:10}", "", ""], [11, "FREE", "HAL", "N/A", 500, 7, 8, 0, "0x12c000000000", "{addr:0x12c000000000,size:20971520}", "", ""],
    ]  # fmt: skip


def _chrome() -> dict[str, Any]:
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9, "ts": 100, "dur": 500},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 110.5, "dur": 20},
        {
            "ph": "X",
            "cat": "python_function",
            "name": "train.py(12): forward",
            "pid": 9,
            "tid": 9,
            "ts": 105,
            "dur": 90,
        },
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "python"}},
    ]
    for at, addr, size in ((112, 4096, 1024), (120, 8192, 2048), (150, 4096, -1024), (160, 512, -77), (170, 4096, 512)):
        args = {
            "Device Type": 1,
            "Device Id": 0,
            "Addr": addr,
            "Bytes": size,
            "Total Allocated": 1024,
            "Total Reserved": 2 << 20,
        }
        events.append({"ph": "i", "name": "[memory]", "pid": 9, "tid": 9, "ts": at, "s": "t", "args": args})
    events.append(
        {"ph": "i", "name": "[memory]", "pid": 9, "tid": 9, "ts": "130.25", "args": {"Device Type": 0, "Bytes": 64}}
    )
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "totalGlobalMem": 1 << 34}], "traceEvents": events}


def _database() -> dict[str, list[list[Any]]]:
    names = [[1, "aten::mm"], [2, "PTA"], [3, "allocate"], [4, "release"], [5, "GE"]]
    operator = ["name", "size", "allocationTime", "releaseTime", "activeReleaseTime", "duration", "activeDuration", "allocationTotalAllocated",
                "allocationTotalReserved", "allocationTotalActive", "releaseTotalAllocated", "releaseTotalReserved", "releaseTotalActive",
                "streamPtr", "deviceId"]  # fmt: skip
    return {
        "STRING_IDS": [["id", "value"], *names],
        "OP_MEMORY": [operator, [1, 4096, 1000, 9000, 9500, 8000, 8500, 4096, 2 * MIB, 4096, 0, 2 * MIB, 0, 99, 0],
                      [1, 512, 2000, None, None, None, None, 4608, 2 * MIB, 4608, None, None, None, 99, 0]],
        "MEMORY_RECORD": [["component", "timestamp", "totalAllocated", "totalReserved", "totalActive", "streamPtr", "deviceId"],
                          [2, 1000, 4096, 2 * MIB, 4096, 99, 0], [5, 1500, 1, 2, 3, None, 0]],
        "META_DATA": [["name", "value"], ["ENV_VARIABLES", '{"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}'], ["SCHEMA_VERSION", "1"]],
        "STEP_TIME": [["id", "startNs", "endNs"], [1, 900, 9900]],
    }  # fmt: skip


def _graph_database() -> dict[str, list[list[Any]]]:
    calls = [
        "operatorName",
        "addr",
        "type",
        "size",
        "timestampNs",
        "globalTid",
        "totalAllocate",
        "totalReserve",
        "component",
        "deviceId",
    ]
    return {
        "STRING_IDS": [["id", "value"], [1, "MatMul"], [5, "GE"]], "ENUM_MEMORY": [["id", "name"], [0, "release"], [1, "allocate"]],
        "NPU_OP_MEM": [calls, [1, 4096, 1, 512, 1000, 7, 512, 2 * MIB, 5, 0], [1, 4096, 0, -512, 1500, 7, 0, 2 * MIB, 5, 0]],
        "ENUM_MODULE": [["id", "name"], [3, "RUNTIME"]], "NPU_MODULE_MEM": [["moduleId", "timestampNs", "totalReserved", "deviceId"], [3, 1000, 4096, 0]],
    }  # fmt: skip


def _usage() -> list[list[int]]:
    return [
        [3, 77, 4096, 1000, 1024, 1024, 2 * MIB, 1024, 99, 20, 0, 0, 0, 0, 8, 7], [3, 77, 4096, 1500, -1024, 0, 2 * MIB, 1024, 99, 20, 0, 0, 1, 0, 8, 7],
        [3, 77, 4096, 1600, -1024, 0, 2 * MIB, 0, 99, 20, 0, 0, 2, 0, 8, 7], [3, 77, 8192, 1700, 512, 512, 2 * MIB, 512, 99, 20, 1, 1, 0, 1, 8, 7],
    ]  # fmt: skip


def _events() -> dict[str, list[Any]]:
    ops = ["alloc", "free", "empty_cache", "record_stream", "complete", "sync", "oom"]
    return {
        "op": ["|i1", [0, 0, 3, 1, 0, 4, 2, 1, 5]], "id": ["<i8", [1, 2, 1, 1, 3, 0, 0, 2, 0]], "size": ["<i8", [4096, MIB, 0, 0, 30 * MIB, 0, 0, 0, 0]],
        "stream": ["<i8", [0, 0, 5, 0, 0, -1, 0, 0, 0]], "ops": ["<U13", ops], "confs": ["<U1", [""]], "total": ["<i8", 8 << 30], "done": ["<U3", "now"],
    }  # fmt: skip


def _trees() -> dict[str, dict[str, Any]]:
    page = [
        b'<!DOCTYPE html><html><body><script>const data = "',
        snapshot("2.1"),
        b'"; show(data)</script></body></html>',
    ]
    lifespans = [["id", "lower", "upper", "size"], [0, 3, 9, 4], [1, 0, 3, 512], [2, 5, 7, 10**9], ["b", 7, 7, 0]]
    raw = [
        [-1, 0, 4096, 0],
        [10**18, 1, 512, 4],
        [10**18 + 5, 2, -512, 4],
        [10**18 + 5, 2, 512, 7],
        [10**18 + 9, 3, -512, 7],
        [10**18 + 9, 1, 64, 5],
    ]
    sums = [[1000, 2000, 3000], [[0, 5, 6, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8], [0, 0, 0, 0, 0, 0, 0, 1]]]
    modules = [
        ["Component", "Timestamp(us)", "Total Reserved(MB)", "Device"],
        ["RUNTIME", 1000, 5, "NPU:0"],
        ["HCCL", "1000.5", 7.5, "NPU:0"],
    ]
    process = [
        ["Device_id", "event", "ddr(KB)", "hbm(KB)", "memory(KB)", "timestamp(us)"],
        [0, "app", 0, 512, 512, 1000],
        [0, "device", 1, 900, 901, 1002],
    ]
    raw_records = [
        ["Device_id", "Component", "Timestamp(us)", "Total Allocated(KB)", "Total Reserved(KB)"],
        [0, "GE", 1000, 512, 2048],
    ]
    return {
        "memory-viz-html": {"page.html": page},
        "event-npz": {"events.npz": _events()},
        "ascend-db": {"pytorch.db": _database(), "graph.db": _graph_database()},
        "msmemscope-db": {"memscope_dump_1.db": {"memscope_dump": _memscope()}, "leaks_dump_1.db": {"leaks_dump": _memscope()[:5]}},
        "msmemscope-csv": {"memscope_dump_1.csv": _memscope()},
        "ascend-csv": {
            "operator_memory.csv": _operator_memory(), "memory_record.csv": _memory_record(), "npu_module_mem.csv": modules, "npu_mem.csv": process,
            "raw_record.csv": raw_records,
        },
        "ascend-memory-usage": {"torch.memory_usage": _usage()},
        "lifespans-csv": {"lifespans.csv": lifespans, "buffers.csv": [["id", "lower", "upper", "size", "offset"], [0, 0, 5, 8, 0]]},
        "memory-timeline": {"timeline.raw.json": raw, "timeline.json": sums},
        "chrome-trace": {"trace.json": _chrome(), "events.json": _chrome()["traceEvents"]},
    }  # fmt: skip


class _Plain(random.Random):
    """A generator without randomness, for the plainest form of every seed."""

    def random(self) -> float:
        return 0.999

    def choice(self, seq: Any) -> Any:
        return seq[0]


def write(folder: Path) -> None:
    """Writes all seeds below ``folder``."""
    made: dict[tuple[str, str], bytes] = {}
    for name, (tree, protocol) in _snapshots().items():
        fixed = random.Random(0)  # noqa: S311 - not for secrets
        fixed.randrange = lambda *_, protocol=protocol: 4 if protocol is None else protocol  # type: ignore[method-assign]
        fixed.random: Callable[[], float] = lambda protocol=protocol: 0.05 if protocol is None else 0.5  # type: ignore[method-assign,misc]
        made["torch-snapshot", name] = dump_pickle(tree, fixed)
    for source, trees in _trees().items():
        for name, tree in trees.items():
            made[source, name] = CODECS[source].dump(tree, _Plain())
    for (source, name), data in made.items():
        path = folder / source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    write(HERE)
