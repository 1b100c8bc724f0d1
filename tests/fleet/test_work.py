"""One file, local or remote, is read and summarised in a few kilobytes; errors are returned instead of raised."""

from __future__ import annotations

import bz2
import gzip
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.fleet.facts import facts_of
from memdiag.fleet.files import find
from memdiag.fleet.replaying import subject_of
from memdiag.fleet.store import ResultStore
from memdiag.fleet.work import work
from memdiag.trace import schema
from memdiag.trace.table import Table


def task_of(url, **more):
    return {"url": str(url), "name": "the file", "action": "diagnose", **more}


@pytest.fixture
def snapshot(goldens) -> Path:
    return goldens / "cuda-2.13.0-recorded" / "snapshot.pickle"


def test_facts_are_small_and_add_up(snapshot):
    facts = work(task_of(snapshot))["facts"]
    assert len(json.dumps(facts, allow_nan=False)) < 40_000
    assert sum(size for _, _, size, _ in facts["parts"]) == facts["fullest_active_bytes"]
    assert sum(size for _, size, _ in facts["places"]) == facts["fullest_active_bytes"]
    assert max(reserved for _, reserved, _ in facts["steps"]) == facts["peak_reserved_bytes"]
    assert facts["parameters"]["embed"][0] > 0


@pytest.mark.parametrize(
    "name",
    ["cuda-2.13.0-oom", "cuda-2.13.0-no-trace", "cuda-2.13.0-empty", "npu-2.13.0-train", "cuda-2.13.0-two-devices"],
)
def test_every_kind_of_trace_has_facts(goldens, name):
    facts = work(task_of(goldens / name / "snapshot.pickle"))["facts"]
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    if name.endswith("oom"):
        assert facts["failed"]["requested_bytes"] > 0


def test_settings_are_searched_on_the_device_that_is_told_of(goldens):
    trace = memdiag.load(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")
    (failed,) = trace.devices
    columns = {name: failed.events[name] for name in failed.events}
    columns["action"] = np.where(columns["action"] == schema.OOM, schema.ACTIONS.index("unknown"), columns["action"])
    larger = replace(
        failed, device=1, events=Table(schema.EVENTS, columns), start={**failed.start, "reserved": 1 << 40}
    )
    both = replace(trace, devices=(failed, larger))
    subject = subject_of(both)
    assert facts_of(both)["device"] == 0
    assert subject is not None
    assert subject.device.device == 0


def test_what_is_no_trace_is_a_result(tmp_path):
    (tmp_path / "x.pkl").write_bytes(b"nonsense")
    error = work(task_of(tmp_path / "x.pkl"))["error"]
    assert "the file" in error["message"]
    assert str(tmp_path) not in error["message"]
    assert "no such file" in work(task_of(tmp_path / "missing.pkl"))["error"]["message"]


def test_a_bug_is_a_result(snapshot, monkeypatch):
    monkeypatch.setattr("memdiag.fleet.facts.facts_of", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in work(task_of(snapshot))["error"]["message"]


def test_other_file_systems_and_compressions_give_the_same(snapshot, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    data = snapshot.read_bytes()
    (tmp_path / "a.pickle.bz2").write_bytes(bz2.compress(data))
    (tmp_path / "a.pickle.gz").write_bytes(gzip.compress(data))
    with fsspec.open("memory://fleet/rank3.pickle", "wb") as file:
        file.write(data)
    (tmp_path / "a::b").mkdir()
    (tmp_path / "a::b" / "zip::rank0.pickle.bz2").write_bytes(bz2.compress(data))
    expected = work(task_of(snapshot))
    assert work(task_of(tmp_path / "a::b" / "zip::rank0.pickle.bz2")) == expected, (
        "a path, not file systems one in another"
    )
    for url in (
        tmp_path / "a.pickle.bz2",
        tmp_path / "a.pickle.gz",
        "memory://fleet/rank3.pickle",
        f"file://{tmp_path}/a.pickle.gz",
    ):
        assert work(task_of(url)) == expected
    assert list(scratch.iterdir()) == []
    error = work(task_of("memory://fleet/nothing.pickle"))["error"]["message"]
    assert error == "the file: no such file"


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setattr("memdiag.fleet.fetch._FLOOR", 1000)
    (tmp_path / "a.pickle.bz2").write_bytes(bz2.compress(bytes(10_000_000)))
    assert "expands to more than" in work(task_of(tmp_path / "a.pickle.bz2"))["error"]["message"]


def test_results_are_kept_as_long_as_nothing_changes(tmp_path):
    (tmp_path / "rank0.pkl").write_bytes(b"x")
    (file,), _ = find([str(tmp_path / "rank0.pkl")])
    store, task, result = ResultStore(tmp_path / "out"), task_of(file.url), {"facts": {"a": 1}}
    assert store.get(file, task) is None
    store.put(file, task, result)
    assert store.get(file, task) == result
    assert store.get(file, {**task, "conf": "other"}) is None
    store.put(file, {**task, "action": "replay"}, {"facts": {"b": 1}})
    assert store.get(file, task) == result
    (tmp_path / "rank0.pkl").write_bytes(b"longer")
    (changed,), _ = find([str(tmp_path / "rank0.pkl")])
    assert store.get(changed, task) is None
    kept = list((tmp_path / "out" / "ranks").iterdir())
    assert len(kept) == 2
    assert all(str(tmp_path) not in path.read_text() for path in kept)
    for path in kept:
        path.write_text("{damaged")
    assert store.get(file, task) is None


def test_what_could_not_be_read_is_not_kept(tmp_path):
    (tmp_path / "rank0.pkl").write_bytes(b"x")
    (file,), _ = find([str(tmp_path / "rank0.pkl")])
    store = ResultStore(tmp_path / "out")
    store.put(file, task_of(file.url), {"error": {"message": "", "hint": ""}})
    assert list((tmp_path / "out" / "ranks").iterdir()) == []
