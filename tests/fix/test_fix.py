"""memdiag fix from the outside: a training on the CPU that exceeds its budget."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.fix.run import case_of
from tests.forking import memdiag_command, python_with_torch

TRAINING = '''"""A training."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 512), nn.Linear(512, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


net = nn.Sequential(*(Block() for _ in range(6)), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    loss = net(torch.randn(4096, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
'''


def memdiag(*arguments, cwd):
    return subprocess.run([*memdiag_command(), *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("fix")
    (made / "train.py").write_text(TRAINING)
    return made


@pytest.fixture(scope="module")
def report(folder):
    done = memdiag("fix", "--budget", "100MiB", "--json", "--", python_with_torch(), "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n0.") >= 4  # the output of both runs
    return json.loads(done.stdout)


def test_it_fits_with_the_same_losses(report):
    assert not report["recorded"]["fits"]
    assert report["predicted"]["fits"]
    assert report["actual"]["fits"]
    assert report["losses"] == {"num_compared": 3, "largest_relative": 0.0}
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["checkpoint"]


def test_the_predicted_peak_is_the_measured_one(report):
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.01)


def test_nothing_is_edited_without_write(folder, report):
    assert report["written"] == []
    assert (folder / "train.py").read_text() == TRAINING
    assert not (folder / "memdiag_fix.py").exists()


def test_after_write_the_script_runs_alone(folder, tmp_path):
    shutil.copy(folder / "train.py", tmp_path)
    done = memdiag("fix", "--budget", "100MiB", "--write", "--", python_with_torch(), "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "train.py").read_text().splitlines()
    assert lines[2] == "from __future__ import annotations"
    assert lines[4] == "import memdiag_fix  # written by memdiag fix; before torch"
    alone = subprocess.run([python_with_torch(), "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert alone.stdout.splitlines() == done.stdout.splitlines()[:3]


def test_a_program_that_fits_is_left_alone(folder):
    done = memdiag("fix", "--budget", "1GiB", "--", python_with_torch(), "train.py", cwd=folder)
    assert done.returncode == 0
    assert "fits into 1.00 GiB as it is" in done.stdout


def test_a_budget_that_nothing_reaches(folder):
    done = memdiag("fix", "--budget", "10MiB", "--", python_with_torch(), "train.py", cwd=folder)
    assert done.returncode == 1
    assert "would not fit into 10.00 MiB" in done.stdout


def test_a_program_that_fails_for_another_reason(folder):
    (folder / "wrong.py").write_text(f"{TRAINING}\nraise SystemExit(3)\n")
    done = memdiag("fix", "--budget", "100MiB", "--", python_with_torch(), "wrong.py", cwd=folder)
    assert done.returncode == 2
    assert "status 3, and memory was not the reason" in done.stderr


def test_no_command(folder):
    done = memdiag("fix", cwd=folder)
    assert done.returncode == 2
    assert "hint: memdiag fix" in done.stderr


def test_a_recorded_run_is_enough(folder):
    shutil.rmtree(folder / "run", ignore_errors=True)
    assert memdiag("record", "-q", "-o", "run", "--", python_with_torch(), "train.py", cwd=folder).returncode == 0
    done = memdiag("fix", "run", "--budget", "100MiB", "--dry-run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"] == str(Path(folder, "run", "rank0.pkl"))


def test_a_recording_that_ends_at_a_failed_allocation_is_refused(root):
    with pytest.raises(MemdiagError, match="ends at a failed allocation"):
        case_of(root / "tests" / "goldens" / "cuda-2.13.0-oom-dump" / "snapshot.pickle", 1 << 30)


def test_a_snapshot_without_history_is_refused(root):
    with pytest.raises(MemdiagError, match="has no history of allocations"):
        case_of(root / "tests" / "goldens" / "cuda-2.13.0-state-only" / "snapshot.pickle", 1 << 30)


def test_a_trace_without_its_run_is_enough_for_a_plan(root):
    trace = root / "examples" / "gpt-train.pickle"
    done = memdiag("fix", str(trace), "--budget", "2800MiB", "--dry-run", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "fits into 2.73 GiB as it is. Its recorded reserved peak is 2.99 GiB" in done.stdout.replace("\n", " ")
    less = memdiag("fix", str(trace), "--budget", "2400MiB", "--dry-run", cwd=root)
    assert "would fit" in less.stdout
    assert "--write" not in less.stdout  # there is no script to write to
