"""The trace that a command reads if the user names a folder."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from memdiag.errors import MemdiagError
from memdiag.runs.chosen import choose_trace
from memdiag.runs.rerun import find_run


@pytest.fixture
def run(tmp_path):
    """Returns a function that makes the files of a run: its age, and for each rank whether it ran out of memory."""

    def make(name, *ranks, age=0):
        folder = tmp_path / f"memdiag-{name}"
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"argv": ["python"], "cwd": str(tmp_path)}))
        for rank, ran_out in enumerate(ranks):
            trace = folder / f"rank{rank}.pkl"
            trace.write_bytes(f"{name} {rank}".encode())
            trace.with_suffix(".json").write_text(json.dumps({"ooms": [{"device": 0}] if ran_out else []}))
            os.utime(trace, (1e9 - age, 1e9 - age))
        return folder

    return make


def test_the_newest_run_that_failed_explains_a_failure(run, tmp_path):
    failed, completed = run("1", True, age=60), run("2", False)
    said = []
    assert choose_trace(tmp_path, say=said.append) == completed / "rank0.pkl"
    assert choose_trace(tmp_path, say=said.append, of_failure=True) == failed / "rank0.pkl"
    assert "ran out of memory" not in said[0]
    assert "the newest run" in said[1]
    assert "that ran out of memory" in said[1]


def test_without_a_failed_run_the_newest_is_read(run, tmp_path):
    run("1", False, age=60)
    newest = run("2", False)
    assert choose_trace(tmp_path, of_failure=True) == newest / "rank0.pkl"


def test_the_rank_that_failed_is_read_unless_another_is_asked_for(run, tmp_path):
    folder = run("1", False, True, True)
    for given in (folder, tmp_path):
        assert choose_trace(given, of_failure=True) == folder / "rank1.pkl"
        assert choose_trace(given, 2, of_failure=True) == folder / "rank2.pkl"
        assert choose_trace(given) == folder / "rank0.pkl"


@pytest.mark.parametrize(
    ("exception", "hint"),
    [
        ("builtins.ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError ended the program before it"),
        (None, "record the command again"),
    ],
)
def test_a_run_that_recorded_nothing_is_no_mere_directory(run, exception, hint):
    folder = run("1")
    manifest = {"status": "ended", "processes": [{"exception": exception}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MemdiagError, match="this run has no trace") as caught:
        choose_trace(folder)
    assert caught.value.hint.startswith(hint)


def test_a_run_that_has_not_ended_may_still_get_a_trace(run):
    folder = run("1")
    assert choose_trace(folder) == folder


@pytest.mark.parametrize("leave", [os.link, shutil.copyfile])
def test_the_short_name_stands_for_its_run(run, tmp_path, leave):
    folder = run("1", True)
    run("2", False, age=60)
    leave(folder / "rank0.pkl", tmp_path / "trace.pkl")
    assert choose_trace(tmp_path, of_failure=True).read_bytes() == b"1 0"
    assert find_run(tmp_path / "trace.pkl").folder == folder
