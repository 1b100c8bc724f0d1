"""Pinned host memory of a snapshot (torch 2.14 and later) is read, shown in every form of the report, and exported."""

from __future__ import annotations

import json
import pickle

import pytest

import memdiag
from memdiag.analyzers.report import build_report
from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.render.analyze import full, md
from memdiag.render.analyze import json as as_json

MIB = 1 << 20
GOLDENS = ["cuda-2.14.0-host", "cuda-2.14.0-fields"]


@pytest.mark.parametrize("name", GOLDENS)
def test_pinned_memory_is_what_the_host_allocator_counted(goldens, name):
    counted = json.loads((goldens / name / "truth.json").read_text())["host"]["end"]
    host = memdiag.load(goldens / name / "snapshot.pickle").host
    assert not host.anomalies
    assert host.end["reserved"] == counted["allocated"]  # PyTorch counts cached blocks as allocated
    assert host.end["active"] == counted["active"]
    assert host.usage_at(host.num_events - 1) == host.end


def test_a_file_of_2_14_is_known_by_its_host_traces(goldens):
    assert memdiag.load(goldens / "cuda-2.14.0-host" / "snapshot.pickle").torch_version == "2.14 or later?"


@pytest.mark.parametrize("name", ["cuda-2.13.0-fields", "cuda-2.14.1-train"])
def test_a_file_without_pinned_memory_has_no_host(goldens, name):
    trace = memdiag.load(goldens / name / "snapshot.pickle")
    assert trace.host is None
    assert build_report(trace).host is None


def test_every_form_of_the_report_shows_pinned_memory(goldens, tmp_path):
    path = goldens / "cuda-2.14.0-host" / "snapshot.pickle"
    report = build_report(memdiag.load(path))
    pinned = report.host.pinned
    assert (pinned.peak_reserved_bytes, pinned.end_reserved_bytes) == (26 * MIB, 26 * MIB)
    assert (pinned.peak_allocated_bytes, pinned.end_allocated_bytes, pinned.num_blocks) == (22 * MIB, 14 * MIB, 5)
    assert sum(site.bytes for site in pinned.top_sites) == pinned.peak_allocated_bytes
    for text in (full.render(report), md.render(report)):
        assert "Pinned host memory" in text
        assert "26.00 MiB" in text
        assert "record_fields.py:59 host" in text
    assert json.loads(as_json.render(report))["host"]["pinned"]["end_allocated_bytes"] == 14 * MIB
    assert main(["analyze", str(path), "--html", str(tmp_path / "r.html")]) == 0


def test_the_page_has_the_tables(goldens):
    from memdiag.render.analyze.html import data_of
    from memdiag.views.picture import build_picture

    trace = memdiag.load(goldens / "cuda-2.14.0-fields" / "snapshot.pickle")
    shown = data_of(build_picture(trace, build_report(trace)), "en")["spoken"]
    titles = [table["title"] for table in shown["en"]["owners"]["host"]]
    assert titles == ["Pinned host memory", "Pinned memory in use by call site"]
    (tables,) = shown["en"]["owners"]["devices"]
    assert [table["head"][-1] for table in tables] == ["note"]
    assert [row[-1] for row in tables[0]["rows"]] == ["weights"]
    assert shown["zh"]["owners"]["host"][0]["title"] == "锁页主机内存"


def test_notes_and_regions_are_in_the_report(goldens):
    report = build_report(memdiag.load(goldens / "cuda-2.14.0-fields" / "snapshot.pickle"), at="end")
    labels = {each.name: each.num_tensors for each in report.devices[0].by_label}
    assert labels == {"weights": 8, "output that the program keeps": 1}


def test_an_export_keeps_pinned_memory(goldens, tmp_path):
    path, again = goldens / "cuda-2.14.0-host" / "snapshot.pickle", tmp_path / "y.pickle"
    assert main(["export", str(path), "--format", "snapshot", "-o", str(again)]) == 0
    first, second = pickle.loads(path.read_bytes()), pickle.loads(again.read_bytes())
    for name in ("host_segments", "host_traces"):
        assert len(second[name]) == len(first[name])
        for one, other in zip(first[name], second[name], strict=True):
            assert {key: other[key] for key in ("stream", "frames")} == {key: one[key] for key in ("stream", "frames")}
    assert [each["size"] for each in second["host_traces"]] == [each["size"] for each in first["host_traces"]]


def broken(place):
    entry = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    block = {"address": 4096, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []}
    segment = {"device": -1, "address": 4096, "total_size": 512, "stream": 0, "frames": [], "blocks": [block]}
    found = {"segment": segment, "block": block, "entry": entry}
    if place in found:
        found[place]["brand_new"] = 1
    return {"segments": [], "device_traces": [], "host_segments": [segment], "host_traces": [entry]}


@pytest.mark.parametrize("place", ["segment", "block", "entry"])
def test_an_unknown_field_of_pinned_memory_is_named(tmp_path, place):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(broken(place)))
    (note,) = [str(note.text) for note in memdiag.load(path).notes if note.code == "MD903"]
    assert "'brand_new'" in note


@pytest.mark.parametrize("value", [None, 7, "text", {}, [], [[]], [{}]])
def test_strange_pinned_memory_is_refused_or_ignored(tmp_path, value):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(broken("") | {"host_segments": value}))
    try:
        trace = memdiag.load(path)
    except MemdiagError:
        return
    assert trace.host is None or trace.host.end["reserved"] >= 0
