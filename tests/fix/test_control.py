"""memdiag fix stays in control: it undoes remedies that harm, and an interruption leaves the user's files untouched."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from memdiag.fix import run, trial
from memdiag.fix.base import Proposal
from memdiag.fix.edit import Edit
from memdiag.fix.remedies import PROGRAM_REMEDIES
from memdiag.fix.run import FixOrder
from memdiag.fix.undo import Attempt, find_worse
from memdiag.results.fix import FixPeaks
from memdiag.runs.recording import Order
from tests.fix import hoard
from tests.fix.test_fix import TRAINING
from tests.forking import python_with_torch

MIB = 1 << 20
WAITING = """
import os, time
number = len(os.listdir("runs"))
open(f"runs/{number}", "w").close()
while number == LAST:
    time.sleep(0.05)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path / "train.py"


def order(script):
    return FixOrder(
        Order((python_with_torch(), str(script)), {}, str(script.parent / "runs"), has_short_name=False), 100 * MIB
    )


def test_a_remedy_that_makes_things_worse_is_undone(script, tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    shutil.copytree(trial.INSIDE, inside)
    (inside / "hoard.py").write_text(hoard.INSIDE)
    monkeypatch.setattr(trial, "INSIDE", inside)
    monkeypatch.setattr(PROGRAM_REMEDIES, "targets", {"hoard": "tests.fix.hoard", **PROGRAM_REMEDIES.targets})
    report, applied = run.fix(order(script))
    undone = [step for step in report.steps if step.is_undone]
    assert [(step.name, step.is_chosen) for step in undone] == [("hoard", False)]
    assert [each.name for each in applied.chosen] == ["checkpoint"]
    assert report.actual.fits
    assert report.losses.num_compared == 3


def test_a_plan_that_misses_narrowly_is_made_again_with_memory_to_spare(script, tmp_path, monkeypatch):
    tight, _ = run.fix(replace(order(script), dry_run=True))
    inside = tmp_path / "inside"
    shutil.copytree(trial.INSIDE, inside)
    with (inside / "checkpoint_modules.py").open("a") as file:
        file.write("torch.kept = torch.zeros(1 << 20, dtype=torch.uint8)\n")
    monkeypatch.setattr(trial, "INSIDE", inside)
    shown = []
    budget = tight.predicted.reserved_bytes
    report, _ = run.fix(replace(order(script), budget_bytes=budget), on_plan=shown.append)
    assert [plan.predicted.fits for plan in shown] == [True, True]
    assert shown[0].predicted == tight.predicted
    assert shown[1].predicted.allocated_bytes < 0.98 * budget
    assert report.actual.fits
    assert report.budget_bytes == budget
    assert not [step for step in report.steps if step.is_undone]


def proposal(name):
    return Proposal(name, name, (), Edit(), "", "")


def attempt(allocated, *, ended_well=True, num_served=None):
    return Attempt(FixPeaks(allocated, allocated, ended_well), ended_well, num_served)


@pytest.mark.parametrize(
    ("now", "without_a", "without_b", "expected"),
    [
        (attempt(50), attempt(50), attempt(40), "b"),
        (attempt(50), attempt(40), attempt(50), "a"),
        (attempt(50), attempt(50), attempt(60), None),
        (attempt(50, ended_well=False), attempt(60), attempt(50, ended_well=False), "a"),
        (attempt(50, ended_well=False), attempt(50, ended_well=False, num_served=7), attempt(1, ended_well=False), "a"),
        (
            attempt(50, ended_well=False, num_served=9),
            attempt(50, ended_well=False, num_served=7),
            attempt(50, ended_well=False, num_served=9),
            None,
        ),
    ],
)
def test_the_remedy_without_which_the_program_does_better(now, without_a, without_b, expected):
    both = [proposal("a"), proposal("b")]
    found = find_worse(now, both, lambda rest: without_b if rest[0].name == "a" else without_a)
    assert (found and found.name) == expected


@pytest.mark.parametrize("to_all", [False, True], ids=["memdiag only", "all processes, as Ctrl-C in a terminal"])
@pytest.mark.parametrize("last", [0, 1], ids=["recording", "fixed run"])
def test_an_interruption_leaves_the_files_of_the_user_untouched(script, tmp_path, last, to_all):
    text = TRAINING + WAITING.replace("LAST", str(last))
    script.write_text(text)
    (tmp_path / "runs").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "memdiag", "fix", "--budget", "100MiB", "--write", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (tmp_path / "runs" / str(last)).exists() and process.poll() is None:
        time.sleep(0.05)
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert script.read_text() == text
    assert not (tmp_path / "memdiag_fix.py").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the program has ended too


def test_an_interruption_while_remedies_are_chosen(script, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "choose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.fix(order(script))
    assert script.read_text() == TRAINING
