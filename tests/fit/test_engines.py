"""Runs of ``memdiag fit`` on the nodes of a fleet's engine."""

from __future__ import annotations

import json
import sys

import pytest

from memdiag.errors import MemdiagError
from memdiag.fit.recordings import Recorder, RunOrder
from memdiag.fleet.work import KILLED, work
from tests.fit.test_fit import PROGRAM, run
from tests.phantom import npu_stand_in

DEVICE = "npu:910b-64g"


class Node:
    """An engine with one node, which is this process."""

    workers = 3

    def __init__(self, answer=work):
        self.answer, self.tasks, self.is_closed = answer, [], False

    def map(self, tasks):
        """Does the tasks in order."""
        self.tasks += tasks
        yield from enumerate(map(self.answer, tasks))

    def close(self):
        """Closes the engine."""
        self.is_closed = True


def recorded(folder, engine, *words):
    recorder = Recorder(folder, engine=engine)
    try:
        return recorder.record(RunOrder((sys.executable, *words), {}, DEVICE, None, None))
    finally:
        recorder.stop()


def test_a_run_of_a_node_is_kept_with_its_status_and_output(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    engine = Node()
    made = recorded(tmp_path, engine, "-c", "raise SystemExit('no such batch')")
    assert made.status != 0
    assert made.host_bytes > 0
    assert made.output.exists()
    assert json.loads((made.folder / "run.json").read_text())["status"] == made.status
    (task,) = engine.tasks
    assert task["variables"]["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64"
    assert "PATH" in task["variables"]
    assert engine.is_closed
    assert recorded(tmp_path, engine, "-c", "raise SystemExit('no such batch')").is_reused


def test_as_many_runs_go_on_as_the_cluster_has_workers(tmp_path):
    recorder = Recorder(tmp_path, engine=Node())
    assert recorder.num_at_a_time == 3
    recorder.stop()


@pytest.mark.parametrize("answers", [[{"error": KILLED}], []])
def test_a_run_whose_node_is_lost_is_not_kept(tmp_path, answers):
    engine = Node()
    engine.map = lambda _: enumerate(answers)
    made = recorded(tmp_path, engine, "-c", "pass")
    assert made.status == 137
    assert not (made.folder / "run.json").exists()


def test_a_node_that_cannot_start_programs_is_an_error(tmp_path):
    engine = Node(lambda _: {"error": {"message": "no such module", "hint": "install memdiag there"}})
    with pytest.raises(MemdiagError, match="no such module"):
        recorded(tmp_path, engine, "-c", "pass")


@npu_stand_in.needs_npu
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_finds_what_this_machine_finds(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["--device", "npu:910b-64g,room=450MiB", "--grid", "mbs=1,6", "--jobs", "2", "--json"]
    found = []
    for engine in ("local", "ray"):
        command = ["--", npu_stand_in.PYTHON, "program.py", "{mbs}", "less"]
        done = run(tmp_path, "fit", *words, "--engine", engine, "--output", engine, *command)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.replace(f"{engine}/runs", "runs")))
    here, there = found
    assert (there["num_runs"], there["num_reused"]) == (2, 0)
    assert there["cells"] == here["cells"]
