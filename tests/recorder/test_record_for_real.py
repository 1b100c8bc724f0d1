"""``memdiag record`` with real trainings that are killed, interrupted, started by torchrun or profiled by cProfile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import memdiag

RECORD = [sys.executable, "-m", "memdiag", "record", "-q"]
TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)
"""


WORKER = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def start(python: list[str], folder: Path, *options: str, steps: int = 100_000) -> subprocess.Popen[str]:
    program = folder / "train.py"
    program.write_text(TRAIN.format(steps=steps))
    command = [*RECORD, "-o", str(folder / "run"), *options, "--", *python, str(program)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.fixture
def python(cpu):
    return cpu.python


def wait_for(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdout is not None
    for printed in child.stdout:
        if printed.strip() == line:
            return
    raise AssertionError(child.communicate()[1])


@pytest.mark.parametrize("number", range(4))
def test_killed_at_any_moment_every_file_is_whole(python, tmp_path, number):
    child = start(python, tmp_path, "--every", "1")
    wait_for(child, "step 1")
    time.sleep(random.Random(number).random())  # noqa: S311 - seeded
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    files = list((tmp_path / "run").glob("rank*.pkl"))
    assert files
    assert all(memdiag.load(file).num_events for file in files)


def test_an_interrupted_training_leaves_a_trace(python, tmp_path):
    child = start(python, tmp_path)
    wait_for(child, "step 5")
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    _, said = child.communicate(timeout=120)
    assert "KeyboardInterrupt" in said
    assert child.returncode in {-signal.SIGINT, 130}
    assert memdiag.load(tmp_path / "run" / "rank0.pkl").num_events


def test_torchrun_leaves_one_trace_per_rank(python, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    command = [
        *RECORD,
        "-o",
        str(tmp_path / "run"),
        "--",
        *python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ]
    done = subprocess.run(
        [*command, str(worker)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "run").glob("rank*.pkl")) == ["rank0.pkl", "rank1.pkl"]


def test_a_cprofile_profile_of_the_program_is_the_same(cpu):
    with_us, without = cpu("profiled_python.py"), cpu("profiled_python.py", recorded=False)
    assert with_us.done.stdout == without.done.stdout == "[4]\n"
