"""memdiag bisect over commits of a repository, with programs on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from memdiag.errors import MemdiagError
from memdiag.gates.bisect import BisectOrder, _Run, bisect
from memdiag.gates.revisions import Commits, Prepared, Versions
from memdiag.runs.listener import Silent
from tests.forking import memdiag_command

PROGRAM = """
import torch


def step(mebibytes):
    return torch.ones(mebibytes << 18)


kept = step({mebibytes})
"""


class Numbers:
    """Revisions 0 … 9."""

    good, bad, is_separate = "0", "9", True

    def __init__(self):
        self.prepared = []

    def candidates(self, good, bad):
        left = range(max(map(int, good)) + 1, int(bad))
        return [*map(str, sorted(left, key=lambda each: abs(2 * each - left.start - left.stop + 1))), bad]

    def prepare(self, revision, command):
        self.prepared.append(revision)
        return Prepared((*command, revision), None)

    def title(self, _revision):
        return ""

    def close(self):
        pass


@pytest.fixture
def peaks(monkeypatch):
    """Replaces the runs by known peaks; None: the run fails."""
    known = {}

    def recorded(_order, prepared, *_):
        peak = known[prepared.command[-1]]
        is_oom = peak == -1
        why = "failed" if peak is None else "out of memory" if is_oom else ""
        return _Run(None if is_oom else peak, None, is_oom, why, 1.0, "run")

    monkeypatch.setattr("memdiag.gates.bisect._recorded", recorded)
    return known


def test_the_first_bad_revision_is_found_with_few_runs(peaks, tmp_path):
    peaks.update({str(number): 100 if number < 7 else 300 for number in range(10)})
    report = bisect(BisectOrder(("x",), tmp_path), Numbers())
    assert (report.first_bad, report.last_good, report.budget_bytes) == ("7", "6", 200)
    assert len(report.steps) <= 6
    assert report.verdict == "7 raised peak_reserved from 100 B to 300 B."


def test_each_revision_is_prepared_once_and_no_more_than_one_too_many_per_run(peaks, tmp_path):
    peaks.update({str(number): 100 if number < 7 else 300 for number in range(10)})
    numbers = Numbers()
    report = bisect(BisectOrder(("x",), tmp_path), numbers)
    assert len(set(numbers.prepared)) == len(numbers.prepared) <= 2 * len(report.steps)
    assert {step.name for step in report.steps} <= set(numbers.prepared)


@pytest.mark.parametrize(("device", "together"), [("cuda:h100-80g", 3), (None, 1)])
def test_both_ends_and_the_middle_run_together_on_a_simulated_device(device, together, monkeypatch, tmp_path):
    barrier = threading.Barrier(together, timeout=30)
    begun, texts = [], []

    def recorded(_order, prepared, *_):
        number = int(prepared.command[-1])
        begun.append(number)
        if number in {0, 4, 9}:
            barrier.wait()
        return _Run(100 if number < 7 else 300, None, False, "", 1.0, "run")

    monkeypatch.setattr("memdiag.gates.bisect._recorded", recorded)
    listener = Silent()
    listener.say = texts.append
    report = bisect(BisectOrder(("x",), tmp_path, budget_bytes=200, device=device), Numbers(), listener)
    assert (report.first_bad, [step.name for step in report.steps[:3]]) == ("7", ["0", "9", "4"])
    assert len(set(begun)) == len(begun) == len(report.steps)
    assert texts == ["memdiag: 9 candidates from 0 to 9, about 6 runs"]


def test_revisions_that_share_a_checkout_are_prepared_when_they_run(peaks, tmp_path):
    peaks.update({str(number): 100 if number < 7 else 300 for number in range(10)})
    numbers = Numbers()
    numbers.is_separate = False
    report = bisect(BisectOrder(("x",), tmp_path), numbers)
    assert numbers.prepared == [step.name for step in report.steps]


def test_skipped_revisions_leave_candidates_and_out_of_memory_is_bad(peaks, tmp_path):
    peaks.update({str(number): 100 for number in range(5)} | {"5": None, "6": None} | dict.fromkeys("789", -1))
    report = bisect(BisectOrder(("x",), tmp_path, budget_bytes=200), Numbers())
    assert report.first_bad == ""
    assert sorted(report.candidates) == ["5", "6", "7"]
    assert {step.name for step in report.steps if step.status == "skipped"} == {"5", "6"}
    assert "3 candidates" in report.verdict


@pytest.mark.parametrize(
    ("good", "bad", "text", "status"),
    [(300, 400, "GOOD is over the limit", 2), (100, 150, "BAD is within the limit", 1), (None, 300, "be measured", 2)],
)
def test_ends_that_are_not_good_and_bad_are_refused(peaks, tmp_path, good, bad, text, status):
    peaks.update({"0": good, "9": bad})
    with pytest.raises(MemdiagError, match=text) as caught:
        bisect(BisectOrder(("x",), tmp_path, budget_bytes=200), Numbers())
    assert caught.value.exit_code == status


def test_neutral_changes_give_no_alarm(peaks, tmp_path):
    peaks.update({"0": 100, "9": 100})
    with pytest.raises(MemdiagError, match="BAD is within the limit") as caught:
        bisect(BisectOrder(("x",), tmp_path), Numbers())
    assert caught.value.exit_code == 1


def git(folder, *words):
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(
        [shutil.which("git"), *words],
        cwd=folder,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository in which the fourth of five commits allocates more."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number, mebibytes in enumerate((20, 20, 20, 60, 60)):
        (folder / "train.py").write_text(f"# {number}\n" + PROGRAM.format(mebibytes=mebibytes))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
    (folder / "train.py").write_text("not committed")
    return folder


def test_a_commit_is_found_without_touching_the_checkout(repository, root, tmp_path):
    pytest.importorskip("torch", reason="needs torch, which is recorded")
    runs = tmp_path / "runs"
    command = [*memdiag_command(), "bisect", "--runs", str(runs), "--metric", "allocated", "--json"]
    done = subprocess.run(
        [*command, "HEAD~4..HEAD", "--", sys.executable, "train.py"],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(root), "MEMDIAG_LANG": "en"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "(change 3) raised peak_allocated from 20.00 MiB to 60.00 MiB." in told["verdict"]
    assert told["first_bad"] == git(repository, "rev-parse", "HEAD~1")[:12]
    assert told["sites"][0]["label"] == "train.py:7 step"
    assert (told["sites"][0]["good_bytes"], told["sites"][0]["bad_bytes"]) == (20 << 20, 60 << 20)
    assert (repository / "train.py").read_text() == "not committed"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--short") == "M train.py"


def test_unknown_commits_and_commands_that_are_no_python_are_refused(repository, monkeypatch, tmp_path):
    monkeypatch.chdir(repository)
    with pytest.raises(MemdiagError, match="git rev-parse --verify"):
        Commits("HEAD", "no-such-branch", tmp_path)
    with pytest.raises(MemdiagError, match="must start with a Python"):
        Versions("torch", "1", "2", ("torchrun", "x.py"), tmp_path)
