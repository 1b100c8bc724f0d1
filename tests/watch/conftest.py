"""Running programs to watch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import memdiag
from memdiag.phantom import launch as phantom
from memdiag.phantom import profiles
from memdiag.watch.mechanisms.gdb import can_write_registers
from tests.recorder.conftest import python_or_skip

PROGRAM = Path(__file__).parent / "programs" / "train.py"
NO_GDB = "needs gdb (apt-get install gdb)"
WAIT = 120.0  # seconds: the machine that runs the tests may be busy


class Program:
    """A training that runs until it is stopped."""

    def __init__(self, device: str, folder: Path, armed: bool, options: Sequence[str]) -> None:
        command = [*python_or_skip(device), str(PROGRAM), device, str(folder), *options]
        base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON"))}
        if device == "cuda":
            base = phantom.environment_for(profiles.choose("cuda:h100-80g"), command, base)
        if armed:
            site = str(Path(memdiag.__file__).parent / "recorder" / "site")
            base |= {"MEMDIAG_ARM": "1", "PYTHONPATH": os.pathsep.join([site, *base.get("PYTHONPATH", "").split()])}
        self.folder = folder
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, env=base, stderr=errors, stdout=errors)
        self.pid = self.process.pid

    def wait_for(self, steps: int) -> None:
        """Waits until a number of further steps is complete."""
        until = time.monotonic() + WAIT
        wanted = len(self.losses()) + steps
        while len(self.losses()) < wanted:
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def losses(self) -> list[str]:
        """Returns the losses so far."""
        path = self.folder / "steps"
        return [line.split()[0] for line in path.read_text().splitlines() if " " in line] if path.exists() else []

    def stop(self) -> dict:
        """Ends the program; returns the hooks, threads and modules that are left in it."""
        (self.folder / "stop").touch()
        assert self.process.wait(WAIT) == 0, self.errors.read_text()
        assert self.errors.read_text() == ""
        return json.loads((self.folder / "left").read_text())


NOTHING = {
    "hooks": [0, 0, 0, 0],
    "wrapped": False,
    "modules": [],
    "threads": [],
    "finders": [],
    "profile": False,
    "profiler": False,
    "events": 0,
    "names": [],
}


@pytest.fixture
def start(tmp_path):
    """Starts programs and kills those that are left."""
    programs = []

    def begin(device: str = "cpu", *, armed: bool = False, options: Sequence[str] = ()) -> Program:
        folder = tmp_path / f"program{len(programs)}"
        folder.mkdir()
        programs.append(Program(device, folder, armed, options))
        programs[-1].wait_for(2)
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGKILL)
            program.process.wait()


@pytest.fixture
def gdb():
    """Skips a test where gdb is missing, or older than the processor."""
    if shutil.which("gdb") is None:
        pytest.skip(NO_GDB)
    if not can_write_registers():
        pytest.skip("gdb cannot write the registers of this processor")


def memdiag_watch(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess:
    """Runs ``memdiag watch``."""
    command = [sys.executable, "-m", "memdiag", "watch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
