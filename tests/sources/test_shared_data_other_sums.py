"""Values in the other shared files: loads, totals and views agree with what the files themselves state."""

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

from memdiag.sources import load
from memdiag.trace import schema
from tests.sources.test_shared_data_other import MIB, OPENED, PROFILE_OPENED, RUN, TABLES

INSIGHT = "Ascend__msinsight__"


RANKS = ("level0__rank0", "level0__rank1", "level1__rank0", "level2__rank0")


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
