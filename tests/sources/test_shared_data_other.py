"""Every real file of other tools opens in the expected format or is refused, and its numbers match a second
computation.
"""

import csv
import gzip
import json
import sqlite3
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.trace import schema

MIB = 1 << 20
NO_MEMORY = "without memory events"
PICTURE = "contains only a picture"
NO_FORMAT = "not a memory trace in any format"
NO_LIST = "no list of events"

INSIGHT = "Ascend__msinsight__"
TABLES = f"{INSIGHT}test__data__pytorch__text__{{}}_ascend_pt__ASCEND_PROFILER_OUTPUT__{{}}"
RANKS = ("level0__rank0", "level0__rank1", "level1__rank0", "level2__rank0")
# File: format, events, tensors.
OPENED = {
    **{
        TABLES.format(rank, table): ("ascend-csv", 256, 127)
        for rank in RANKS
        for table in ("memory_record.csv", "operator_memory.csv")
    },
    **{
        TABLES.format(rank, "npu_module_mem.csv"): ("ascend-csv", 14 if rank.startswith("level1") else 13, 0)
        for rank in RANKS
    },
    **{
        f"{INSIGHT}test__data__pytorch__db__{rank}_ascend_pt__ASCEND_PROFILER_OUTPUT__"
        f"ascend_pytorch_profiler_{rank[-1]}.db": (
            "ascend-db",
            256,
            127,
        )
        for rank in RANKS
    },
    f"{INSIGHT}server__src__test__test_data__full_db__msprof_0.db": ("ascend-db", 492, 246),
    f"{INSIGHT}server__src__test__test_data__memscope__host_pinned__memscope_dump_20260527062213.db": (
        "msmemscope-db",
        7,
        6,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__memory_record.csv": (
        "ascend-csv",
        3,
        0,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__operator_memory.csv": (
        "ascend-csv",
        3,
        0,
    ),
    f"{INSIGHT}server__src__test__test_data__test_rank_0__ASCEND_PROFILER_OUTPUT__npu_module_mem.csv": (
        "ascend-csv",
        10,
        0,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__memory_record.csv": (
        "ascend-csv",
        6206,
        3103,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__operator_memory.csv": (
        "ascend-csv",
        6206,
        3103,
    ),
    f"{INSIGHT}test__st__level2__rank_0_ascend_pt__ASCEND_PROFILER_OUTPUT__npu_module_mem.csv": ("ascend-csv", 45, 0),
    "Ascend__msmemscope__example__compare__baseline.csv": ("msmemscope-csv", 32, 18),
    "Ascend__msmemscope__test__smoke__testfile__csvfile__memscope_dump_20250428113810.csv": (
        "msmemscope-csv",
        268,
        251,
    ),
    "cappadokes__idealloc__benchmarks__iopddl__G_1.csv": ("lifespans-csv", 1632, 816),
    "cappadokes__idealloc__benchmarks__iopddl__Y_1.csv": ("lifespans-csv", 124_370, 62_185),
    "cappadokes__idealloc__benchmarks__somas_tensors__resnet50.csv": ("lifespans-csv", 2084, 1042),
    **{
        f"google__minimalloc__benchmarks__challenging__{name}.1048576.csv": ("lifespans-csv", 2 * rows, rows)
        for name, rows in zip("ABCDEFG", (154, 170, 203, 213, 215, 296, 308), strict=True)
    },
    "google__minimalloc__benchmarks__examples__input.12.csv": ("lifespans-csv", 10, 5),
    "facebookresearch__HolisticTraceAnalysis__tests__data__memory_analysis__memory_timeline.raw.gz": (
        "memory-timeline",
        7335,
        3990,
    ),
    **{
        f"tonghuikang__optimizer-memory-profiles__profiling__{run}__profile.raw.json.gz": (
            "memory-timeline",
            events,
            tensors,
        )
        for run, events, tensors in (
            ("local_cpu_sgd", 16_701, 8512),
            ("modal_cpu_sgd", 24_963, 12_643),
            ("modal_gpu_adam_gradacc", 13_061, 6934),
            ("modal_gpu_sgd", 12_256, 6290),
            ("modal_gpu_sgd_momentum", 12_417, 6451),
        )
    },
    "pytorch__kineto__tb_plugin__samples__resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz": (
        "chrome-trace",
        12_838,
        6420,
    ),
    "pytorch__kineto__tb_plugin__samples__resnet50_num_workers_4__worker0.1623212756351.pt.trace.json.gz": (
        "chrome-trace",
        10_980,
        5490,
    ),
}
REFUSED = {
    (
        f"{INSIGHT}test__data__pytorch__text__level2__rank0_ascend_pt__ASCEND_PROFILER_OUTPUT__trace_view.json"
    ): "Ascend trace_view",
    "Ascend__msprof-analyze__test__ut__advisor__advisor_backend__timeline_advice__trace_view.json": "Ascend trace_view",
    "Da1sypetals__tomi__snapshots__allocations.json": NO_LIST,
    "Maphsge4__select_n__traces__linear_stack_2023_11_08.21.26.55.html": PICTURE,
    "tonghuikang__optimizer-memory-profiles__profiling__modal_gpu_sgd__profile.html": PICTURE,
    (
        "facebookresearch__HolisticTraceAnalysis__tests__data__amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    ): NO_MEMORY,
    (
        "facebookresearch__HolisticTraceAnalysis__tests__data__mtia_inference_trace__mtia_inference_rank_0.json.gz"
    ): NO_MEMORY,
    "facebookresearch__HolisticTraceAnalysis__tests__data__ns_resolution_trace__"
    "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": NO_MEMORY,
}
RUN = "vm_13890_20261121014323644_ascend_pt"
PROFILE_OPENED = {
    "mt.json": ("memory-timeline", 92, 0),
    f"{RUN}/ASCEND_PROFILER_OUTPUT/memory_record.csv": ("ascend-csv", 71, 36),
    f"{RUN}/ASCEND_PROFILER_OUTPUT/operator_memory.csv": ("ascend-csv", 71, 36),
    f"{RUN}/FRAMEWORK/torch.memory_usage": ("ascend-memory-usage", 71, 36),
}
PROFILE_REFUSED = {
    f"{RUN}/ASCEND_PROFILER_OUTPUT/analyse.done": "is empty",
    f"{RUN}/ASCEND_PROFILER_OUTPUT/operator_details.csv": "times of operators",
    f"{RUN}/ASCEND_PROFILER_OUTPUT/trace_view.json": "Ascend trace_view",
    **{
        f"{RUN}/FRAMEWORK/torch.{name}": NO_FORMAT
        for name in ("op_mark", "op_range", "param_tensor_info", "python_tracer_func", "python_tracer_hash")
    },
    f"{RUN}/profiler_info.json": NO_LIST,
    f"{RUN}/profiler_metadata.json": NO_LIST,
}


@pytest.fixture
def other(shared):
    return shared / "data" / "other"


@pytest.fixture
def profile(shared):
    return shared / "data" / "npu-samples" / "prof"


def check_opened(file, expected):
    trace = load(file)
    assert (trace.format, trace.num_events, trace.num_tensors) == expected
    assert trace.notes
    for device in trace.devices:
        for name in ("reserved", "allocated", "active", "requested"):
            assert (device.usage[name] >= -1).all()
        assert "double_free" not in device.anomalies


def check_refused(file, reason):
    with pytest.raises(RefusedFile) as refusal:
        load(file)
    assert reason in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize("name", OPENED)
def test_opened(other, name):
    check_opened(other / name, OPENED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(other, name):
    check_refused(other / name, REFUSED[name])


@pytest.mark.parametrize("name", PROFILE_OPENED)
def test_profile_opened(profile, name):
    check_opened(profile / name, PROFILE_OPENED[name])


@pytest.mark.parametrize("name", PROFILE_REFUSED)
def test_profile_refused(profile, name):
    check_refused(profile / name, PROFILE_REFUSED[name])


def test_no_file_is_forgotten(other, profile):
    def names(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    assert names(other) == OPENED.keys() | REFUSED.keys()
    assert names(profile) == PROFILE_OPENED.keys() | PROFILE_REFUSED.keys()


# The load of each benchmark, from its authors' papers and a sweep over the file.
LOADS = {
    **dict.fromkeys(
        (f"google__minimalloc__benchmarks__challenging__{name}.1048576.csv" for name in "ABEFG"), 1_048_576
    ),
    "google__minimalloc__benchmarks__challenging__C.1048576.csv": 1_039_360,
    "google__minimalloc__benchmarks__challenging__D.1048576.csv": 986_112,
    "google__minimalloc__benchmarks__examples__input.12.csv": 12,
    "cappadokes__idealloc__benchmarks__somas_tensors__resnet50.csv": 1_515_472_556,
    "cappadokes__idealloc__benchmarks__iopddl__G_1.csv": 3_030_937_746,
    "cappadokes__idealloc__benchmarks__iopddl__Y_1.csv": 497_261_190_115,
}


@pytest.mark.parametrize("name", LOADS)
def test_the_load_of_planning_benchmarks(other, name):
    assert int(load(other / name).devices[0].usage.allocated.max()) == LOADS[name]


@pytest.mark.parametrize(
    "name", [name for name, (kind, *_) in OPENED.items() if kind == "ascend-csv" and name.endswith("memory_record.csv")]
)
def test_totals_of_ascend_tables_are_the_files_own(other, name):
    with (other / name).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Component"] == "PTA"]
    device = load(other / name).devices[0]
    for curve, column in (
        ("allocated", "Total Allocated(MB)"),
        ("reserved", "Total Reserved(MB)"),
        ("active", "Total Active(MB)"),
    ):
        values = [round(float(row[column]) * MIB) for row in rows if row.get(column)]
        ours = device.usage[curve][device.usage[curve] >= 0].tolist()
        assert (max(ours, default=-1), min(ours, default=-1), ours[-1:]) == (
            max(values, default=-1),
            min(values, default=-1),
            values[-1:],
        )
        # memdiag's curve has the same steps as the file's curve, in the same order.
        assert [b for a, b in pairwise([None, *ours]) if a != b] == [b for a, b in pairwise([None, *values]) if a != b]


@pytest.mark.parametrize("rank", RANKS)
def test_tables_and_databases_of_one_kind_of_run_agree(other, rank):
    text = load(other / TABLES.format(rank, "operator_memory.csv")).devices[0]
    base = load(other / next(name for name in OPENED if f"db__{rank}" in name)).devices[0]
    # The files come from different runs of one program: the order of threads differs, but the requests are the same.
    assert sorted(text.tensors.requested_bytes.tolist()) == sorted(base.tensors.requested_bytes.tolist())
    for name in ("allocated", "reserved", "active"):
        assert int(text.usage[name].max()) == int(base.usage[name].max())
        assert int(text.usage[name][-1]) == int(base.usage[name][-1])


@pytest.mark.parametrize("rank", RANKS)
def test_totals_of_ascend_databases_are_the_files_own(other, rank):
    file = other / next(name for name in OPENED if f"db__{rank}" in name)
    with sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True) as database:
        rows = database.execute(
            "SELECT totalAllocated, totalReserved, totalActive FROM MEMORY_RECORD JOIN STRING_IDS ON id = component "
            "WHERE value = 'PTA' ORDER BY timestamp"
        ).fetchall()
    database.close()
    device = load(file).devices[0]
    for curve, values in zip(("allocated", "reserved", "active"), zip(*rows, strict=True), strict=True):
        ours = device.usage[curve][device.usage[curve] >= 0].tolist()
        assert [b for a, b in pairwise([None, *ours]) if a != b] == [b for a, b in pairwise([None, *values]) if a != b]


def test_three_views_of_one_profile_agree(profile):
    files = [name for name in PROFILE_OPENED if name != "mt.json"]
    first, second, third = (load(profile / name) for name in files)
    for one, other in ((first, second), (second, third)):
        for name in ("action", "size", "stream", "time_us", "tensor"):
            assert one.devices[0].events[name].tolist() == other.devices[0].events[name].tolist()
        for name in ("allocated", "reserved", "active"):
            assert one.devices[0].usage[name].tolist() == other.devices[0].usage[name].tolist()
        assert one.torch_version == other.torch_version == "2.13.0"
    assert all(trace.settings == {"PYTORCH_NPU_ALLOC_CONF": ""} for trace in (first, second, third))


def test_raw_calls_of_the_allocator_are_all_there(profile):
    data = (profile / RUN / "FRAMEWORK" / "torch.memory_usage").read_bytes()
    calls = [struct.unpack_from("<7q2b3B2Q", data, at + 6) for at in range(0, len(data), 83)]
    caching = [call for call in calls if call[9] == 0]
    device = load(profile / RUN / "FRAMEWORK" / "torch.memory_usage").devices[0]
    assert (device.events.action == schema.ALLOC).sum() == sum(call[10] == 0 for call in caching)
    assert (device.events.action == schema.FREE_COMPLETED).sum() == sum(call[10] == 2 for call in caching)
    assert int(device.usage.allocated.max()) == max(call[3] for call in caching)
    assert int(device.usage.allocated[-1]) == caching[-1][3]
    # The sum over events equals the number that the allocator counted.
    size = np.where(device.events.action == schema.ALLOC, device.events.size, -device.events.size)
    assert (device.start["allocated"] + np.cumsum(size) == device.usage.allocated).all()


@pytest.mark.parametrize("name", [name for name, (kind, *_) in OPENED.items() if kind == "memory-timeline"])
def test_timelines_sum_up_and_by_category(other, name):
    rows = json.loads(gzip.decompress((other / name).read_bytes()))
    trace = load(other / name)
    device = trace.devices[0]
    changes = [size for _, action, size, _ in rows if action != 3]
    assert device.usage.allocated.tolist() == np.cumsum(changes).tolist()
    # Categories at the peak, computed by a replay; a tensor keeps its first category.
    peak = int(np.argmax(np.cumsum(changes)))
    live: dict[tuple[int, int], list[int]] = {}
    seen = -1
    for at, (_, action, size, category) in enumerate(rows):
        if action == 3:
            if size < 0:
                live.setdefault((-size, rows[at + 1][3]), []).append(live[-size, category].pop())
            continue
        if size > 0:
            live.setdefault((size, category), []).append(category)
        else:
            live[-size, category].pop()
        seen += 1
        if seen == peak:
            break
    named = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "temporary", "unknown")
    expected = Counter()
    for (size, _), born in live.items():
        for category in born:
            expected[named[category]] += size
    ours = Counter()
    rows_live = device.live(peak)
    for category, size in zip(
        device.tensors.category[rows_live].tolist(), device.tensors.requested_bytes[rows_live].tolist(), strict=True
    ):
        ours[schema.CATEGORIES[category]] += size
    assert ours == expected


@pytest.mark.parametrize("name", [name for name, (kind, *_) in OPENED.items() if kind == "chrome-trace"])
def test_profiler_traces_add_up(other, name):
    events = [
        event
        for event in json.loads(gzip.decompress((other / name).read_bytes()))["traceEvents"]
        if event.get("name") == "[memory]"
    ]
    trace = load(other / name)
    for device, kind in zip(trace.devices, (1, 0), strict=True):
        changes = [event["args"]["Bytes"] for event in events if event["args"]["Device Type"] == kind]
        assert device.usage.allocated.tolist() == np.cumsum(changes).tolist()
        assert device.anomalies == {}
    assert sum(name.startswith("ProfilerStep#") for name in trace.strings) == 6
    labels = {trace.stacks.label(stack) for stack in trace.devices[0].tensors.stack.tolist()}
    assert "resnet50_profiler_api.py:46 <module>" in labels


def test_msmemscope_counts_as_the_allocator_does(other):
    name = "Ascend__msmemscope__example__compare__baseline.csv"
    with (other / name).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Event Type"] == "PTA"]
    rows.sort(key=lambda row: int(row["ID"]))
    used = [int(row["Attr"].rstrip("}").rsplit("used:", 1)[1]) for row in rows]
    device = load(other / name).devices[0]
    assert device.usage.allocated.tolist() == used
    size = np.where(device.events.action == schema.ALLOC, device.events.size, -device.events.size)
    assert np.cumsum(size).tolist() == used


def test_pinned_memory_is_what_the_tracers_own_viewer_worked_out(other):
    name = next(name for name in OPENED if "host_pinned" in name)
    with sqlite3.connect(f"{(other / name).as_uri()}?mode=ro&immutable=1", uri=True) as database:
        totals = [size for (size,) in database.execute("SELECT totalSize FROM memory_allocation ORDER BY timestamp")]
    database.close()
    assert load(other / name).devices[0].usage.allocated.tolist() == totals


@pytest.mark.parametrize("folder", ["oracle", "oracle-npu"])
def test_plain_events_add_up(shared, folder):
    files = sorted(Path(shared / "data" / folder).glob("*.npz"))
    assert files
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            op, identity, size = arrays["op"], arrays["id"], arrays["size"]
            names = arrays["ops"].tolist()
            total = int(arrays["total"])
        trace = load(file)
        device = trace.devices[0]
        assert (trace.format, device.num_events, device.capacity_bytes) == ("event-npz", len(op), total)
        assert [schema.ACTIONS[a].replace("free_completed", "free") for a in device.events.action] == [
            names[o] for o in op
        ]
        assert not any("unknown ops" in note.text for note in trace.notes)
        live: dict[int, int] = {}
        held, expected = 0, []
        for o, i, s in zip(op.tolist(), identity.tolist(), size.tolist(), strict=True):
            if names[o] == "alloc":
                live[i] = s
                held += s
            elif names[o] == "free":
                held -= live.pop(i, 0)
            expected.append(held)
        assert device.usage.requested.tolist() == expected
