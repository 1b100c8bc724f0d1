"""Trainings that end without Python's exit, through several launchers: output, status and files are whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import memdiag

TRAIN = """
import os, signal
os.environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:64"  # programs set it themselves
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)
import ctypes, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
{ending}
"""
ENDINGS = {
    "exit at once": "os._exit(3)",
    "abort": "os.abort()",
    "segmentation fault": "ctypes.string_at(0)",
    "own SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
}
LAUNCHERS = {
    "script": ["train.py"],
    "module": ["-m", "train"],
    "wrapper": None,  # a shell that waits for the program and passes its status on
}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


def same(python, folder, ending, launcher):
    """Runs a training bare and recorded; returns both, and the trace."""
    (folder / "train.py").write_text(TRAIN.format(ending=ENDINGS[ending]))
    words = LAUNCHERS[launcher]
    command = [*python, *words] if words else ["sh", "-c", '"$@"; exit $?', "sh", *python, "train.py"]
    record = [sys.executable, "-m", "memdiag", "record", "-q", "--every", "1", "-o", str(folder / "run"), "--"]
    bare, recorded = (
        subprocess.run(each, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        for each in (command, [*record, *command])
    )
    return bare, recorded, memdiag.load(folder / "run" / "rank0.pkl")


@pytest.mark.parametrize(
    ("ending", "launcher"),
    [("exit at once", "module"), ("abort", "wrapper"), ("segmentation fault", "script"), ("own SIGTERM", "script")],
)
def test_a_program_that_ends_abruptly_ends_as_without_memdiag(cpu, tmp_path, ending, launcher):
    bare, recorded, trace = same(cpu.python, tmp_path, ending, launcher)
    assert (recorded.returncode, recorded.stdout) == (bare.returncode, bare.stdout)
    assert recorded.stdout.splitlines()[-1] == "step 2"
    assert trace.num_events
