"""Which Pythons can be recorded here, and how to record a program in one of them.

torch is no dependency of memdiag, so it is in another Python, or in none. Tests ask for ``record``, which is there for
each of:

* cpu: the Python of the tests if it has torch, else the one that MEMDIAG_TEST_TORCH_PYTHON names;
* cuda, npu: the command that MEMDIAG_TEST_CUDA_PYTHON or MEMDIAG_TEST_NPU_PYTHON names: a Python on a machine with the device, or a
  script that starts one on a stand-in for the runtime (set FAKE_CUDA_BLAS=1 as well, so that matrix products do nothing there);
* cuda, npu, where none is named: on memdiag's own phantom device, the Python of the tests if it has a CUDA build of torch, or that of
  .venv-npu, which make test makes for a CPU build.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memdiag
from memdiag.phantom import launch as phantom
from memdiag.phantom import profiles
from memdiag.recorder.config import Config
from memdiag.recorder.launch import environment_for
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from tests.pythons import own_cuda_python, own_npu_python

PROGRAMS = Path(__file__).parent / "programs"
DEVICES = ("cpu", "cuda", "npu")
PHANTOMS = {"cuda": (own_cuda_python(), "cuda:h100-80g"), "npu": (own_npu_python(), "npu:910b-64g")}
_LEFT_OUT = ("MEMDIAG", "PYTHON", "RANK", "WORLD_SIZE", "LOCAL_", "TORCHELASTIC")


def python_with_torch(device: str = "cpu") -> list[str]:
    """Returns the command of a Python that can use a device with torch; empty: there is none."""
    name = {"cpu": "MEMDIAG_TEST_TORCH_PYTHON"}.get(device, f"MEMDIAG_TEST_{device.upper()}_PYTHON")
    named = shlex.split(os.environ.get(name, ""))
    if not named and device in PHANTOMS:
        return [python for python in PHANTOMS[device][:1] if python]
    if not named and device == "cpu" and importlib.util.find_spec("torch") is not None:
        return [sys.executable]
    return named


def python_or_skip(device: str = "cpu") -> list[str]:
    """Returns the same, or skips the test."""
    command = python_with_torch(device)
    if not command and device == "cpu":
        pytest.skip("needs torch: install it here, or name a Python that has it in MEMDIAG_TEST_TORCH_PYTHON")
    if not command:
        pytest.skip(
            f"needs {device}: name a Python that can use it, or a stand-in's, in MEMDIAG_TEST_{device.upper()}_PYTHON"
        )
    return command


@dataclass(frozen=True)
class Run:
    """A program that has ended, and what it left.

    Attributes:
        done: Its status, stdout and stderr.
        folder: Where its traces are.
        truth: What it said of itself.
    """

    done: subprocess.CompletedProcess[str]
    folder: Path
    truth: dict[str, Any]

    def path(self, rank: int = 0) -> Path:
        return self.folder / f"rank{rank}.pkl"

    def status(self, rank: int = 0) -> dict[str, Any]:
        return json.loads((self.folder / f"rank{rank}.json").read_text())

    @cached_property
    def trace(self) -> Trace:
        return memdiag.load(self.path())

    @property
    def device(self) -> DeviceTrace:
        return self.trace.devices[0]


class Recorder:
    """Runs programs with and without a recording."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self.python = python_or_skip(device)
        self._number = 0

    def __call__(
        self,
        *words: str,
        settings: dict[str, Any] | None = None,
        recorded: bool = True,
        status: int = 0,
        env: dict[str, str] | None = None,
    ) -> Run:
        """Runs a program (a file of ``programs``, or any words for Python) to its end; {out} in a word is where its truth goes."""
        self._number += 1
        place = self.folder / f"{self._number}"
        place.mkdir()
        out = place / "truth.json"
        base = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        base.update({"PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        if self.device in PHANTOMS and not os.environ.get(f"MEMDIAG_TEST_{self.device.upper()}_PYTHON"):
            base = phantom.environment_for(profiles.choose(PHANTOMS[self.device][1]), self.python, base)
        config = Config(**{"folder": str(place / "run"), "backends": (self.device,), **(settings or {})})
        command = [str(PROGRAMS / words[0]) if words[0].endswith(".py") else words[0], *words[1:]]
        done = subprocess.run(
            [*self.python, *(word.replace("{out}", str(out)) for word in command)],
            cwd=place,
            capture_output=True,
            text=True,
            env=environment_for(config, base) if recorded else base,
            timeout=500,
            check=False,
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        truth = json.loads(out.read_text()) if out.exists() else {}
        return Run(done, place / "run", truth)

    def train(self, *words: str, **more: Any) -> Run:
        """Runs the program that trains a small model."""
        return self("train.py", "{out}", "--device", self.device, *words, **more)


@pytest.fixture
def cpu(tmp_path: Path) -> Recorder:
    """Records programs on the CPU."""
    return Recorder("cpu", tmp_path)


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recorder], Run]:
    """Returns the recording of a small GPT without hooks of its own: one for each device, for all tests that only read it."""
    runs: dict[str, Run] = {}

    def run(recorder: Recorder) -> Run:
        if recorder.device not in runs:
            runs[recorder.device] = Recorder(recorder.device, tmp_path_factory.mktemp("plain")).train("--plain")
        return runs[recorder.device]

    return run


@pytest.fixture(params=DEVICES)
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Records programs on each device there is."""
    return Recorder(request.param, tmp_path)


@pytest.fixture(params=DEVICES[1:])
def accelerator(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Records programs on each accelerator there is."""
    return Recorder(request.param, tmp_path)


class Comparison:
    """Holds a recording against what the program said of itself."""

    def __init__(self, run: Run, rank: int = 0) -> None:
        self.run = run
        trace = memdiag.load(run.path(rank))
        self.device = trace.devices[0]
        self.strings = trace.strings
        self.truth = run.truth

    def name(self, row: int) -> str:
        number = int(self.device.tensors.name[row])
        return self.strings[number] if number >= 0 else ""

    def category(self, row: int) -> str:
        return schema.CATEGORIES[self.device.tensors.category[row]]

    @cached_property
    def places(self) -> list[int]:
        """The rows of the markers; -1: not recorded."""
        born = self.device.tensors.requested_bytes
        found = [np.flatnonzero(born == moment["size"]) for moment in self.truth["moments"]]
        assert all(len(rows) <= 1 for rows in found), "a marker's size is not unique"
        return [int(rows[0]) if len(rows) else -1 for rows in found]

    def at(self, addr: int, moment: int) -> list[int]:
        """Returns the tensors whose memory holds an address at a moment."""
        tensors = self.device.tensors
        row = self.places[moment]
        event = tensors.alloc_at[row]
        alive = (tensors.alloc_at <= event) & (tensors.free_requested_at > event)
        holds = (tensors.addr <= addr) & (addr < tensors.addr + np.maximum(tensors.block_bytes, 1))
        return np.flatnonzero(alive & holds).tolist()

    def wrong_phases(self) -> list[str]:
        """Returns the moments whose phase or step is not what the program said."""
        wrong = []
        for number, (moment, row) in enumerate(zip(self.truth["moments"], self.places, strict=True)):
            if row < 0:
                wrong.append(f"moment {number} is not in the trace: {moment}")
                continue
            event = self.device.tensors.alloc_at[row]
            phase, step = schema.PHASES[self.device.events.phase[event]], int(self.device.events.step[event])
            if (moment["phase"] and phase != moment["phase"]) or step != moment["step"]:
                wrong.append(f"moment {number}: {moment}, recorded as {phase}, step {step}")
        return wrong

    def wrong_tensors(self, categories: Sequence[str] = (), *, views: bool = False) -> list[str]:
        """Returns the tensors that are not recorded as the program said; ``views``: a tensor may be a part of a larger one."""
        wrong = []
        for said in self.truth["tensors"]:
            kind = said["category"].rstrip("?")
            if categories and kind not in categories:
                continue
            rows = self.at(said["addr"], said["at"])
            if len(rows) != 1:
                wrong.append(f"{said}: {len(rows)} tensors there")
                continue
            row, tensors = rows[0], self.device.tensors
            name, category = self.name(row), self.category(row)
            if not views and (
                tensors.addr[row] != said["address_of_storage"] or tensors.requested_bytes[row] != said["bytes"]
            ):
                wrong.append(f"{said}: recorded at {tensors.addr[row]} with {tensors.requested_bytes[row]} bytes")
            if category != kind and not (said["category"].endswith("?") and category == "temporary"):
                wrong.append(f"{said}: recorded as {category} {name!r}")
            is_named = name == said["name"] or (kind == "activation" and self._is_made_in(said["name"], name))
            if said["name"] and not is_named and not views:
                wrong.append(f"{said}: recorded as {name!r}")
        return wrong

    def _is_made_in(self, module: str, name: str) -> bool:
        """Whether a name says that a tensor was made in a module; without times only the outer modules are told apart."""
        path = name.split(" ", maxsplit=1)[0]
        return path == module or (self.truth["device"] == "npu" and module.startswith(path + "."))

    def overlapping(self) -> list[tuple[int, int]]:
        """Returns the pairs of tensors that share a byte while both are alive."""
        tensors, live, found = self.device.tensors, {}, []
        moments = [(int(at), True, row) for row, at in enumerate(tensors.alloc_at)]
        moments += [(int(at), False, row) for row, at in enumerate(tensors.free_requested_at)]
        for _, is_born, row in sorted(moments):
            begin, end = int(tensors.addr[row]), int(tensors.addr[row] + tensors.block_bytes[row])
            if is_born:
                found += [(other, row) for other, (first, last) in live.items() if first < end and begin < last]
                live[row] = (begin, end)
            else:
                live.pop(row, None)
        return found

    def shares(self) -> tuple[float, float]:
        """Returns the shares of the bytes live at the peak that have a category, and that have a name."""
        device = self.device
        live = device.live(device.peak("allocated"))
        size = device.tensors.requested_bytes[live]
        return (
            float(size[device.tensors.category[live] > 0].sum() / size.sum()),
            float(size[device.tensors.name[live] >= 0].sum() / size.sum()),
        )


@pytest.fixture
def compare() -> type[Comparison]:
    """Holds a recording against what the program said of itself."""
    return Comparison
