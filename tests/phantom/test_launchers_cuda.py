"""Trainings of two processes end as without memdiag's recorder, whichever launcher starts them and however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

import memdiag
from tests.phantom.cuda_stand_in import PYTHON, needs_torch, run

pytestmark = needs_torch

TRAIN = """
import os, signal, sys, time
import torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.ones(64) * index

def train(rank=0, loads=""):
    device = f"cuda:{os.environ.get('LOCAL_RANK', rank)}"
    torch.cuda.set_device(device)
    model = torch.nn.Linear(64, 64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    workers = {"num_workers": 2, "multiprocessing_context": loads} if loads else {}
    for step, rows in enumerate(torch.utils.data.DataLoader(Rows(), 2, **workers)):
        model(rows.to(device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        sys.stdout.write(f"step {step}\\n")
        sys.stdout.flush()
    ENDING

if __name__ == "__main__":
    CALL
"""
ENDINGS = {
    "end": "pass",
    "exit at once": "os._exit(3)",
    "exception": "raise ValueError('as without memdiag')",
    "own SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "wait": "time.sleep(300)",
}
METHODS = ("spawn", "fork", "forkserver")
LAUNCHERS = {
    "accelerate": "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no --main_process_port 0 train.py",
    "deepspeed": "deepspeed.launcher.runner --num_gpus 2 --master_port 29513 train.py",
}


def write(folder, ending, call="train()"):
    (folder / "train.py").write_text(TRAIN.replace("ENDING", ENDINGS[ending]).replace("CALL", call))


def words_of(launcher):
    if launcher not in LAUNCHERS:
        return ["train.py"]
    package = launcher.partition(" ")[0]
    if subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{package} is not installed")
    return ["-m", *LAUNCHERS[launcher].split()]


def record(words):
    options = ["-q", "--phantom", "cuda:h100-80g,devices=2", "--every", "1", "-o", "run"]
    return [sys.executable, "-m", "memdiag", "record", *options, "--", PYTHON, *words]


def call_of(launcher):
    processes = f"torch.multiprocessing.start_processes(train, nprocs=2, start_method={launcher!r})"
    return processes if launcher in METHODS else "train()"


def steps_in(text):
    return Counter(line for line in text.splitlines() if line.startswith("step "))


@pytest.mark.parametrize(
    ("launcher", "ending", "is_recorded"),
    [
        *((launcher, "end", True) for launcher in (*LAUNCHERS, *METHODS)),
        ("accelerate", "exception", True),
        ("accelerate", "SIGKILL", False),
        ("deepspeed", "exit at once", False),
        ("spawn", "exception", False),
        ("spawn", "own SIGTERM", False),
        ("forkserver", "exit at once", False),
        ("fork", "SIGKILL", False),
    ],
)
def test_two_processes_end_as_without_memdiag(tmp_path, launcher, ending, is_recorded):
    write(tmp_path, ending, call_of(launcher))
    words = words_of(launcher)
    bare = run(words, tmp_path, device="cuda:h100-80g,devices=2")
    done = subprocess.run(record(words), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == bare.returncode, done.stderr[-3000:]
    # the end of one process may end the other one early, so that only a program that succeeds prints the same
    assert ending != "end" or steps_in(done.stdout) == steps_in(bare.stdout) == Counter(
        {f"step {n}": 2 for n in range(3)}
    )
    files = sorted(tmp_path.glob("run/rank*.pkl"))
    assert len(files) == 2 or not is_recorded, done.stderr[-3000:]
    assert files
    assert all(memdiag.load(file).num_events for file in files)
    assert not list((tmp_path / "run").glob("*.part"))


@pytest.mark.parametrize("loads", METHODS)
def test_workers_of_a_data_loader_change_nothing(tmp_path, loads):
    write(tmp_path, "end", f"train(0, {loads!r})")
    done = subprocess.run(record(["train.py"]), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert (done.returncode, done.stdout) == (0, "step 0\nstep 1\nstep 2\n"), done.stderr[-3000:]
    assert [path.name for path in tmp_path.glob("run/*.pkl")] == ["rank0.pkl"]
    assert memdiag.load(tmp_path / "run" / "rank0.pkl").num_events


@pytest.mark.parametrize(
    ("launcher", "number", "to_group"),
    [
        ("spawn", signal.SIGINT, True),
        ("spawn", signal.SIGTERM, False),
        ("accelerate", signal.SIGTERM, False),
        ("forkserver", signal.SIGTERM, True),
    ],
)
def test_a_signal_ends_all_processes_and_their_files_are_whole(tmp_path, launcher, number, to_group):
    write(tmp_path, "wait", call_of(launcher))
    words = words_of(launcher)
    with subprocess.Popen(
        record(words),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        seen = 0
        for line in process.stdout:
            seen += line == "step 2\n"
            if seen == 2:
                break
        os.killpg(process.pid, number) if to_group else process.send_signal(number)
        assert process.wait(timeout=200) != 0
    files = sorted(tmp_path.glob("run/rank*.pkl"))
    assert files
    assert all(memdiag.load(file).num_events for file in files)
    assert not list((tmp_path / "run").glob("*.part"))
