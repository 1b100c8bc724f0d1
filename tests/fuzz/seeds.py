"""Writes the seeds of the fuzzer: small invented inputs of every format, with the special cases that its reader
handles.

    python -m tests.fuzz.seeds        # writes tests/fuzz/seeds/<source>/

Mutations reach only code near some seed, so add a line here for every new branch in a reader.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.fuzz.forms import CODECS, dump_pickle
from tests.fuzz.seeds_of_logs import bfc_dump, hccl, jax_profile, nccl, rmm
from tests.fuzz.seeds_of_snapshots import MIB, snapshot, snapshots

HERE = Path(__file__).parent / "seeds"


def _columns(names: str) -> list[Any]:
    """Returns names that are separated by commas."""
    return names.split(",")


def _operator_memory() -> list[list[Any]]:
    head = _columns(
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),"
        "Active Duration(us),Allocation Total Allocated(MB),Allocation Total Reserved(MB),"
        "Allocation Total Active(MB),Release Total Allocated(MB),Release Total Reserved(MB),"
        "Release Total Active(MB),Stream Ptr,Device Type"
    )
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
        _columns(
            "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type"
        ),
        ["PTA", "1700000000000001.1", 0.5, 20.0, 0.5, 187651, "NPU:0"],
        ["PTA", "1700000000000002.5", 2.5, 20.0, 2.5, 187651, "NPU:0"],
        ["GE", 1700000000000003, 1, 2, "", "", "NPU:0"],
        ["PTA+GE", 1700000000000004, 3.5, 22, "", "", "NPU:0"],
        ["APP", 1700000000000005, "", 900, "", "", "NPU:0"],
        ["WORKSPACE", 1700000000000006, 1, 1, 1, "", "NPU:1"],
    ]


def _memscope() -> list[list[Any]]:
    head = _columns(
        "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
        "Call Stack(Python),Call Stack(C)"
    )
    return [
        head,
        [1, "SYSTEM", "START_TRACE", "", 100, 7, 8, "N/A", "N/A", "{total:68719476736}", "", ""],
        [
            2,
            "MALLOC",
            "HAL",
            "N/A",
            200,
            7,
            8,
            0,
            "0x12c000000000",
            "{allocation_id:1,addr:0x12c000000000,size:20971520,owner:PTA}",
            "",
            "",
        ],
        [
            3,
            "MALLOC",
            "PTA",
            "aten::mm",
            210,
            7,
            8,
            0,
            "0x12c000000000",
            '"{allocation_id:2,addr:0x12c000000000,size:4096,total:20971520,used:4096,owner:PTA@weight}"',
            "train.py(12): forward\ntrain.py(3): <module>",
            "libtorch.so [0x1f]",
        ],
        [4, "OP_LAUNCH", "ATEN_START", "aten::mm", 205, 7, 8, 0, "N/A", "", "", ""],
        [5, "OP_LAUNCH", "ATEN_END", "aten::mm", 220, 7, 8, 0, "N/A", "", "", ""],
        [6, "MSTX", "RANGE_START", "step 1", 190, 7, 8, 0, "N/A", "", "", ""],
        [7, "MSTX", "RANGE_END", "", 400, 7, 8, 0, "N/A", "", "", ""],
        [
            8,
            "FREE",
            "PTA",
            "N/A",
            300,
            7,
            8,
            0,
            "0x12c000000000",
            "{addr:0x12c000000000,size:4096,total:20971520,used:0}",
            "",
            "",
        ],
        [9, "SNAPSHOT", "OOM_TRIGGER", "", 310, 7, 8, 0, "N/A", "{req_size:99999999}", "", ""],
        [10, "MALLOC", "HOST", "N/A", 320, 7, 8, "host", 5000, "{addr:5000,size:10}", "", ""],
        [11, "FREE", "HAL", "N/A", 500, 7, 8, 0, "0x12c000000000", "{addr:0x12c000000000,size:20971520}", "", ""],
    ]


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
    operator = _columns(
        "name,size,allocationTime,releaseTime,activeReleaseTime,duration,activeDuration,"
        "allocationTotalAllocated,allocationTotalReserved,allocationTotalActive,releaseTotalAllocated,"
        "releaseTotalReserved,releaseTotalActive,streamPtr,deviceId"
    )
    return {
        "STRING_IDS": [["id", "value"], *names],
        "OP_MEMORY": [
            operator,
            [1, 4096, 1000, 9000, 9500, 8000, 8500, 4096, 2 * MIB, 4096, 0, 2 * MIB, 0, 99, 0],
            [1, 512, 2000, None, None, None, None, 4608, 2 * MIB, 4608, None, None, None, 99, 0],
        ],
        "MEMORY_RECORD": [
            _columns("component,timestamp,totalAllocated,totalReserved,totalActive,streamPtr,deviceId"),
            [2, 1000, 4096, 2 * MIB, 4096, 99, 0],
            [5, 1500, 1, 2, 3, None, 0],
        ],
        "META_DATA": [
            ["name", "value"],
            ["ENV_VARIABLES", '{"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}'],
            ["SCHEMA_VERSION", "1"],
        ],
        "STEP_TIME": [["id", "startNs", "endNs"], [1, 900, 9900]],
    }


def _graph_database() -> dict[str, list[list[Any]]]:
    calls = _columns("operatorName,addr,type,size,timestampNs,globalTid,totalAllocate,totalReserve,component,deviceId")
    return {
        "STRING_IDS": [["id", "value"], [1, "MatMul"], [5, "GE"]],
        "ENUM_MEMORY": [["id", "name"], [0, "release"], [1, "allocate"]],
        "NPU_OP_MEM": [
            calls,
            [1, 4096, 1, 512, 1000, 7, 512, 2 * MIB, 5, 0],
            [1, 4096, 0, -512, 1500, 7, 0, 2 * MIB, 5, 0],
        ],
        "ENUM_MODULE": [["id", "name"], [3, "RUNTIME"]],
        "NPU_MODULE_MEM": [["moduleId", "timestampNs", "totalReserved", "deviceId"], [3, 1000, 4096, 0]],
    }


def _usage() -> list[list[int]]:
    return [
        [3, 77, 4096, 1000, 1024, 1024, 2 * MIB, 1024, 99, 20, 0, 0, 0, 0, 8, 7],
        [3, 77, 4096, 1500, -1024, 0, 2 * MIB, 1024, 99, 20, 0, 0, 1, 0, 8, 7],
        [3, 77, 4096, 1600, -1024, 0, 2 * MIB, 0, 99, 20, 0, 0, 2, 0, 8, 7],
        [3, 77, 8192, 1700, 512, 512, 2 * MIB, 512, 99, 20, 1, 1, 0, 1, 8, 7],
    ]


def _events() -> dict[str, list[Any]]:
    ops = _columns("alloc,free,empty_cache,record_stream,complete,sync,oom")
    return {
        "op": ["|i1", [0, 0, 3, 1, 0, 4, 2, 1, 5]],
        "id": ["<i8", [1, 2, 1, 1, 3, 0, 0, 2, 0]],
        "size": ["<i8", [4096, MIB, 0, 0, 30 * MIB, 0, 0, 0, 0]],
        "stream": ["<i8", [0, 0, 5, 0, 0, -1, 0, 0, 0]],
        "ops": ["<U13", ops],
        "confs": ["<U1", [""]],
        "total": ["<i8", 8 << 30],
        "done": ["<U3", "now"],
    }


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
        "msmemscope-db": {
            "memscope_dump_1.db": {"memscope_dump": _memscope()},
            "leaks_dump_1.db": {"leaks_dump": _memscope()[:5]},
        },
        "msmemscope-csv": {"memscope_dump_1.csv": _memscope()},
        "ascend-csv": {
            "operator_memory.csv": _operator_memory(),
            "memory_record.csv": _memory_record(),
            "npu_module_mem.csv": modules,
            "npu_mem.csv": process,
            "raw_record.csv": raw_records,
        },
        "ascend-memory-usage": {"torch.memory_usage": _usage()},
        "lifespans-csv": {
            "lifespans.csv": lifespans,
            "buffers.csv": [["id", "lower", "upper", "size", "offset"], [0, 0, 5, 8, 0]],
        },
        "rmm-csv": {"rmm.dev1.csv": rmm()},
        "jax-profile": {"memory.prof": jax_profile()},
        "bfc-dump": {"tf.log": bfc_dump()},
        "nccl-log": {"nccl.log": nccl()},
        "hccl-log": {"plog.log": hccl()},
        "memory-timeline": {"timeline.raw.json": raw, "timeline.json": sums},
        "chrome-trace": {"trace.json": _chrome(), "events.json": _chrome()["traceEvents"]},
    }


class _Plain(random.Random):
    """A generator without randomness, for the plainest form of every seed."""

    def random(self) -> float:
        return 0.999

    def choice(self, seq: Any) -> Any:
        return seq[0]


def write(folder: Path) -> None:
    """Writes all seeds below ``folder``."""
    made: dict[tuple[str, str], bytes] = {}
    for name, (tree, protocol) in snapshots().items():
        fixed = random.Random(0)  # noqa: S311 - not for secrets
        number = 4 if protocol is None else protocol
        fixed.randrange = lambda *_, number=number: number  # type: ignore[method-assign]
        chance = 0.05 if protocol is None else 0.5
        fixed.random = lambda chance=chance: chance  # type: ignore[method-assign]
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
