"""The local engine reads a file again if its process is killed, without affecting other files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.fleet import local
from memdiag.fleet.local import Local
from memdiag.fleet.work import KILLED

# Processes do not read files; they perform the action in the task's name. "once" kills the process if its mark does not
# exist yet.
BOOT = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from memdiag.fleet import work, worker
def fake(task):
    kind, _, mark = task["name"].partition(":")
    if kind == "once" and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), 9)
    if kind == "always":
        os._exit(1)
    if kind == "noise":
        os.write(1, b"{\\"facts\\": \\"what a library prints\\"}\\n")
        print("more of it")
    if kind == "wait":
        import tempfile, time
        tempfile.mkstemp()
        open(mark, "w").close()
        time.sleep(600)
    return {"facts": {"name": task["name"], "pid": os.getpid()}}
work.work = fake
worker.main()
"""


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(local, "_BOOT", BOOT)
    return Local(workers=2)


def results(engine, *names):
    return [result for _, result in sorted(engine.map([{"name": name} for name in names]), key=lambda pair: pair[0])]


def test_results_come_back_under_their_numbers(engine):
    found = results(engine, *(f"plain:{number}" for number in range(7)))
    assert [each["facts"]["name"] for each in found] == [f"plain:{number}" for number in range(7)]
    assert len({each["facts"]["pid"] for each in found}) <= 2


def test_a_process_that_is_killed_once_leaves_no_trace(engine, tmp_path):
    found = results(engine, "plain:a", f"once:{tmp_path / 'mark'}", "plain:b", "plain:c")
    assert [each["facts"]["name"].partition(":")[0] for each in found] == ["plain", "once", "plain", "plain"]


def test_a_file_that_always_kills_is_broken_and_stops_nobody(engine):
    found = results(engine, "plain:a", "always:", "plain:b", "always:")
    assert [each.get("error") for each in found] == [None, KILLED, None, KILLED]


def test_what_a_library_prints_is_no_answer(engine):
    assert results(engine, "noise:")[0]["facts"]["name"] == "noise:"


def test_processes_are_replaced(engine, monkeypatch):
    monkeypatch.setattr(local, "FILES_A_PROCESS", 2)
    found = results(engine, *(f"plain:{number}" for number in range(6)))
    assert len({each["facts"]["pid"] for each in found}) >= 3


def test_leaving_early_ends_all_processes_and_leaves_no_files(engine, tmp_path):
    tasks = engine.map([{"name": "plain:a"}, {"name": f"wait:{tmp_path / 'mark'}"}])
    assert next(tasks)[1]["facts"]["name"] == "plain:a"
    give_up = time.monotonic() + 300
    while not (tmp_path / "mark").exists():
        assert time.monotonic() < give_up, "the second task never began"
        time.sleep(0.05)
    children, scratch = list(engine._running), Path(engine._scratch)
    assert list(scratch.iterdir())
    tasks.close()
    assert not scratch.exists()
    assert children
    assert all(child._child.returncode is not None for child in children)
    assert not engine._running


def test_whatever_goes_wrong_with_a_process_nobody_waits_for_ever(engine, monkeypatch):
    monkeypatch.setattr(local._Process, "ask", lambda *_: 1 / 0)
    with pytest.raises(MemdiagError, match="ZeroDivisionError"):
        results(engine, "plain:a")


def test_what_cannot_start_is_an_error(monkeypatch):
    monkeypatch.setattr(local, "_BOOT", "raise SystemExit(3)")
    with pytest.raises(MemdiagError, match="could not start a process"):
        results(Local(workers=2), "plain:a", "plain:b")
