"""The picture of a trace is small, exact at every instant that it contains, and keeps every peak."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import memdiag
from memdiag.runs.simulated_runs import runs_of_report
from memdiag.trace.moments import peak_event
from memdiag.trace.stacks import Frame, Stacks
from memdiag.views import flame, heap, picture, timeline
from memdiag.views.columns import pack
from memdiag.views.policies import simulated_curves
from memdiag.views.stacks import PYTORCH, USER, StackSymbols

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt-train.pickle"
SHARED = ROOT.parent / "shared" / "data" / "snapshots"


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(EXAMPLE)


@pytest.fixture(scope="module")
def drawn(trace):
    return picture.build_picture(trace, memdiag.analyze(trace))


def unpacked(columns):
    """Returns columns as the page decodes them."""
    return {name: _values(column) for name, column in columns.items() if name != "n"}


def _values(column):
    values = list(accumulate(column["v"])) if column["d"] else column["v"]
    return np.array(values, np.int64) * column["s"]


@pytest.mark.parametrize("values", [[], [0], [-1, -1], [512, 1024, 512], [3, 1 << 52, -5], list(range(0, 10_000, 7))])
def test_a_column_comes_back(values):
    assert unpacked(json.loads(json.dumps(pack({"a": np.array(values, np.int64), "b": None}))))["a"].tolist() == values


def test_columns_that_go_up_are_short():
    assert len(json.dumps(pack({"a": np.arange(0, 512_000, 512)}))) < 3100  # ", " and a digit per value


def assert_exact(device, drawing):
    """Checks that the sums in the page equal the values of the trace at every instant."""
    at, live = unpacked(drawing["instants"]), unpacked(drawing["tensors"])
    regions = unpacked(drawing["regions"])
    for row, event in enumerate(at["event"]):
        there = (live["alloc_at"] <= event) & (live["free_completed_at"] > event)
        pending = there & (live["free_requested_at"] <= event)
        assert live["block"][there].sum() == at["active"][row]
        assert live["block"][there & ~pending].sum() == at["allocated"][row]
        if device.has_addresses:
            held = (regions["opened_at"] <= event) & (regions["closed_at"] > event)
            assert regions["size"][held].sum() == at["reserved"][row]
            assert (
                at["cache"][row] + at["stranded"][row] + at["foreign"][row] == at["reserved"][row] - at["active"][row]
            )


def test_every_instant_is_exact(trace, drawn):
    device, drawing = trace.devices[0], drawn.devices[0]
    assert_exact(device, drawing)
    at = unpacked(drawing["instants"])
    assert at["event"][drawing["peak_instant"]] == peak_event(device)
    assert at["allocated"][drawing["peak_allocated_instant"]] == device.usage.allocated.max()
    stacked = sum(_values(column) for column in drawing["categories_at"] if column)
    assert stacked.tolist() == at["active"].tolist()


def test_fewer_instants_are_exact_too(trace, monkeypatch):
    monkeypatch.setattr(picture, "MOST_INSTANTS", 100)
    monkeypatch.setattr(picture, "MOST_TENSORS", 400)
    monkeypatch.setattr(picture, "MOST_STACKS", 5)
    drawing = picture.build_picture(trace, memdiag.analyze(trace, replay=False)).devices[0]
    assert drawing["instants"]["n"] < 60
    assert_exact(trace.devices[0], drawing)
    assert unpacked(drawing["flame"])["stack"][-1] == -2  # all other stacks
    assert unpacked(drawing["flame"])["total_bytes"].sum() == trace.devices[0].tensors.block_bytes.sum()


def test_what_is_referred_to_is_there(drawn):
    live, sites = unpacked(drawn.devices[0]["tensors"]), unpacked(drawn.devices[0]["flame"])
    for column, length in (
        (live["stack"], len(drawn.stacks)),
        (sites["stack"], len(drawn.stacks)),
        (live["name"], len(drawn.strings)),
    ):
        assert column.max(initial=-1) < length
    assert max(frame for stack in drawn.stacks for frame in stack) < len(drawn.frames)


def test_a_curve_of_few_points_keeps_both_peaks_and_every_failure(trace):
    device = trace.devices[0]
    at = timeline.pick(device, 200)
    assert len(at) < 260
    for curve in ("reserved", "allocated"):
        assert device.usage[curve][at].max() == device.usage[curve].max()
    assert device.usage.allocated[at].min() == device.usage.allocated.min()


def test_free_ranges_add_up_to_the_split(trace):
    device = trace.devices[0]
    for event in timeline.instants(device, 25).tolist():
        topology = device.topology(event)
        totals = heap.free_ranges(device, topology, trace.layout.large_segment).totals(topology)
        assert totals == {name: int(device.usage[name][event]) for name in totals}


def test_bytes_by_stack_add_up(trace):
    device = trace.devices[0]
    at = device.peak("allocated")
    rows = flame.by_stack(device, at)
    assert rows["bytes_at"].sum() == device.usage.active[at]
    assert rows["num_allocs"].sum() == len(device.tensors)
    # The area under the curve of active bytes, over all events.
    assert rows["byte_events"].sum() == pytest.approx(device.usage.active.astype(float).sum())


def test_policies_are_laid_over_each_other(trace):
    report = memdiag.analyze(trace)
    curves = simulated_curves(runs_of_report(trace, report))
    assert curves[0]["label"] == "as recorded"
    assert unpacked(curves[0]["event"])["reserved"].max() == trace.devices[0].usage.reserved.max()
    assert curves[-1]["policy"] == "bound"
    assert curves[-1]["peak_reserved"] == min(each["peak_reserved"] for each in curves)
    assert {each.peak_reserved_bytes for each in report.what_if if each.is_shown} <= {
        each["peak_reserved"] for each in curves
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real snapshots of ../shared/data/snapshots")
def test_real_snapshots_are_exact_and_small(monkeypatch):
    monkeypatch.setattr(picture, "MOST_INSTANTS", 60)
    for path in sorted(SHARED.iterdir())[::5]:
        loaded = memdiag.load(path)
        drawing = picture.build_picture(loaded, memdiag.analyze(loaded, replay=False))
        for device, shown in zip(loaded.devices, drawing.devices, strict=False):
            if device.has_addresses and not device.anomalies and device.num_events > 1:
                assert_exact(device, shown)


def test_a_curve_that_the_file_does_not_know_is_left_out_and_the_peak_is_of_one_that_it_knows(tmp_path):
    path = tmp_path / "lives.csv"
    path.write_text("id,lower,upper,size\na,0,3,4096\nb,3,9,8192\nc,0,9,2048\n")
    trace = memdiag.load(path)
    (drawing,) = picture.build_picture(trace, memdiag.analyze(trace, replay=False)).devices
    assert "reserved" not in drawing["curve"]
    assert "reserved" not in drawing["instants"]
    allocated = unpacked(drawing["instants"])["allocated"]
    assert allocated[drawing["peak_instant"]] == allocated.max() == 8192 + 2048


def test_the_page_names_stacks_as_the_package_does():
    unwind, evaluate = Frame("??", 0, "torch::unwind::unwind()"), Frame("??", 0, "_PyEval_EvalFrameDefault")
    linear, user = Frame("/env/site-packages/torch/nn/linear.py", 9, "forward"), Frame("/app/train.py", 3, "main")
    stacks, ids = Stacks.from_lists([[unwind, evaluate], [unwind, linear, evaluate], [unwind, linear, evaluate, user]])
    symbols = StackSymbols(SimpleNamespace(stacks=stacks, strings=()))
    assert symbols.stack(ids).tolist() == [0, 1, 2]
    places = ["" if site < 0 else symbols.labels[site] for site in symbols.sites]
    assert places == [stacks.label(int(stack)) for stack in ids] == ["", "linear.py:9 forward", "train.py:3 main"]
    assert dict(zip(symbols.frames, symbols.kinds, strict=True)) == {
        str(unwind): PYTORCH,
        str(evaluate): PYTORCH,
        str(linear): PYTORCH,
        str(user): USER,
    }
