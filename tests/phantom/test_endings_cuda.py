"""Trainings on a simulated CUDA device end as without memdiag's recorder, through several launchers and by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import memdiag
from tests.phantom.cuda_stand_in import PYTHON, needs_torch, run

pytestmark = needs_torch

TRAIN = """
import os, signal, sys, time
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"  # programs set it themselves
import torch

def train():
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.ones(8, 64).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, flush=True)

if __name__ == "__main__":
    {before}
    {call}
    import ctypes, resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    {ending}
"""
PROFILER = """with torch.profiler.profile(profile_memory=True) as profiler:
        train()
    print(any(event.device_memory_usage for event in profiler.key_averages()))"""
HISTORY = "torch.cuda.memory._record_memory_history(max_entries=100)"
OWN_SNAPSHOT = 'print(bool(torch.cuda.memory._snapshot()["device_traces"][0]))'
ENDINGS = {
    "exit at once": "os._exit(3)",
    "abort": "os.abort()",
    "segmentation fault": "ctypes.string_at(0)",
    "own SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "exception": "raise ValueError('as without memdiag')",
    "wait": "time.sleep(300)",
    "end": "pass",
}
LAUNCHERS = {
    "script": "{python} train.py",
    "module": "{python} -m train",
    "wrapper": "sh -c '{python} train.py; exit $?'",
    "activate": ". venv/bin/activate && python train.py",
    "torchrun": "{python} -m torch.distributed.run --standalone --nproc-per-node 1 train.py",
}


def write(folder: Path, ending: str, call: str = "train()", before: str = "pass") -> None:
    (folder / "train.py").write_text(TRAIN.format(ending=ENDINGS[ending], call=call, before=before))
    scripts = folder / "venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "activate").write_text(f'PATH="{scripts}:$PATH"; export PATH\n')
    (scripts / "python").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    (scripts / "python").chmod(0o755)


def record(command: str) -> list[str]:
    options = ["-q", "--phantom", "cuda:h100-80g", "--every", "1", "-o", "run"]
    return [sys.executable, "-m", "memdiag", "record", *options, "--", "sh", "-c", command]


@pytest.mark.parametrize(
    ("ending", "launcher", "code"),
    [
        ("exit at once", "module", 3),
        ("abort", "wrapper", 128 + signal.SIGABRT),
        ("segmentation fault", "script", 128 + signal.SIGSEGV),
        ("own SIGTERM", "activate", 128 + signal.SIGTERM),
        ("SIGKILL", "script", 128 + signal.SIGKILL),
        ("exception", "torchrun", 1),
    ],
)
def test_a_program_that_ends_abruptly_ends_as_without_memdiag(tmp_path, ending, launcher, code):
    write(tmp_path, ending)
    command = LAUNCHERS[launcher].format(python=PYTHON) + "; exit $?"
    done = subprocess.run(
        record(command),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert (done.returncode, done.stdout) == (code, "step 0\nstep 1\nstep 2\n"), done.stderr[-2000:]
    assert memdiag.load(tmp_path / "run" / "rank0.pkl").num_events


@pytest.mark.parametrize(
    ("call", "before", "ending"),
    [(PROFILER, "pass", "end"), (f"train(); {OWN_SNAPSHOT}", HISTORY, "end")],
    ids=["torch.profiler with profile_memory", "its own history"],
)
def test_a_program_that_observes_its_own_memory_prints_the_same(tmp_path, call, before, ending):
    write(tmp_path, ending, call, before)
    bare = run(["train.py"], tmp_path)
    done = subprocess.run(
        record(f"{PYTHON} train.py"), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500
    )
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout), done.stderr[-2000:]
    assert bare.returncode == 0
    assert bare.stdout.splitlines()[-1] == "True", bare.stderr[-2000:]
    assert memdiag.load(tmp_path / "run" / "rank0.pkl").num_events


@pytest.mark.parametrize(
    ("number", "to_group", "codes"),
    [
        (signal.SIGINT, True, {-signal.SIGINT, 128 + signal.SIGINT, 1}),
        (signal.SIGTERM, False, {-signal.SIGTERM, 128 + signal.SIGTERM}),
        (signal.SIGKILL, False, {-signal.SIGKILL}),
    ],
    ids=["SIGINT to the group", "SIGTERM to memdiag", "SIGKILL to memdiag"],
)
def test_a_signal_ends_the_program_and_what_was_written_is_whole(tmp_path, number, to_group, codes):
    write(tmp_path, "wait")
    with subprocess.Popen(
        record(f"exec {PYTHON} train.py"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stdout:
            if line == "step 2\n":
                break
        time.sleep(1)  # the program has reached its wait
        os.killpg(process.pid, number) if to_group else process.send_signal(number)
        assert process.wait(timeout=200) in codes
    trace = memdiag.load(tmp_path / "run" / "rank0.pkl")
    assert trace.num_events
    assert not list((tmp_path / "run").glob("*.part"))
