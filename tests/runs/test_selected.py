"""``--selected LOW..HIGH`` runs a command at both ends of sizes that depend on data."""

from __future__ import annotations

import json
import subprocess

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.runs.order import assumed_values
from memdiag.runs.selected import Fractions, read_fractions
from tests.forking import memdiag_command
from tests.phantom.cuda_stand_in import PYTHON, needs_torch

MIB = 1 << 20
PROGRAM = """
import sys, torch
boxes = torch.rand(1 << 18, device="cuda")  # 1 MiB
if "known" not in sys.argv:
    kept = torch.cat([boxes[boxes > 0.5]] * 4)
    if "mean" in sys.argv and not kept.numel():
        raise ValueError("no box is left")
"""


@pytest.mark.parametrize(
    ("text", "found"), [("0..1", (0, 1)), ("0.25", (0.25, 0.25)), ("0.1..0.1", (0.1, 0.1)), ("1", (1, 1))]
)
def test_a_fraction_or_a_range_is_read(text, found):
    assert read_fractions(text) == Fractions(*found)
    assert read_fractions(text).is_range is (found[0] < found[1])


@pytest.mark.parametrize("text", ["", "..", "2", "-0.1", "1..0", "0..2", "all", "nan", "0..nan"])
def test_other_texts_are_errors(text):
    with pytest.raises(MemdiagError):
        read_fractions(text)


def test_the_upper_end_is_the_recorded_one():
    assert assumed_values("cuda:h100-80g", selected="0.1..0.5") == {"MEMDIAG_PHANTOM_SELECTED": "0.5"}


def test_selected_needs_a_simulated_device(capsys):
    assert main(["record", "--selected", "0..1", "--", "true"]) == 2
    assert "--selected needs --phantom" in capsys.readouterr().err


def run(folder, *words):
    (folder / "program.py").write_text(PROGRAM)
    options = ["--phantom", "cuda:h100-80g", "--selected", "0..1", "-q", "-o", "run"]
    command = [*memdiag_command(), "record", *options, "--", PYTHON, "program.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@needs_torch
def test_both_peaks_are_reported_and_the_lower_run_is_removed(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 size depends on values" in done.stderr
    assert "program.py:5" in done.stderr
    low, high = json.loads((tmp_path / "run" / "selected.json").read_text())["ends"]
    assert (low["fraction"], high["fraction"], low["exit_status"]) == (0, 1, 0)
    assert low["peak_allocated_bytes"] < 3 * MIB
    assert high["peak_allocated_bytes"] >= 6 * MIB
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "manifest.json",
        "rank0.json",
        "rank0.pkl",
        "selected.json",
    ]


@needs_torch
def test_a_program_that_fails_at_the_lower_end_is_named_with_its_output(tmp_path):
    done = run(tmp_path, "mean")
    assert done.returncode == 0, done.stderr
    assert "with --selected 0, the program ended with exit status 1" in done.stderr
    assert "no box is left" in (tmp_path / "run" / "selected-output.txt").read_text()


@needs_torch
def test_without_such_sizes_the_program_runs_once(tmp_path):
    done = run(tmp_path, "known")
    assert "no size in this run depends on unknown values" in done.stderr
    assert not (tmp_path / "run" / "selected.json").exists()
