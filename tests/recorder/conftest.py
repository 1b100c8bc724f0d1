"""Fixtures that record programs in a Python with torch.

torch is not a dependency of memdiag, so the Python that runs the tests may lack it. The fixture ``record`` runs a test
once per device:

* cpu: the Python of the tests if it has torch, else the one named by MEMDIAG_TEST_TORCH_PYTHON;
* cuda, npu: the command named by MEMDIAG_TEST_CUDA_PYTHON or MEMDIAG_TEST_NPU_PYTHON. It is a Python on a machine with
  the device, or a script that starts Python on a simulated runtime (then set FAKE_CUDA_BLAS=1 to skip matrix products).
  If its torch finds no device, it runs on memdiag's simulated one;
* cuda, npu without such a variable: memdiag's simulated device, in the Python of the tests if that has a CUDA build of
  torch, or in the Python of .venv-npu, which ``make test`` creates.
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
from tests import forking
from tests.pythons import finds_device, own_cuda_python, own_npu_python

PROGRAMS = Path(__file__).parent / "programs"
DEVICES = ("cpu", "cuda", "npu")
PHANTOMS = {"cuda": (own_cuda_python(), "cuda:h100-80g"), "npu": (own_npu_python(), "npu:910b-64g")}
_LEFT_OUT = ("MEMDIAG", "PYTHON", "RANK", "WORLD_SIZE", "LOCAL_", "TORCHELASTIC")


def python_with_torch(device: str = "cpu") -> list[str]:
    """Returns the command of a Python whose torch can use a device; empty if there is none."""
    name = {"cpu": "MEMDIAG_TEST_TORCH_PYTHON"}.get(device, f"MEMDIAG_TEST_{device.upper()}_PYTHON")
    named = shlex.split(os.environ.get(name, ""))
    if not named and device in PHANTOMS:
        return [python for python in PHANTOMS[device][:1] if python]
    if not named and device == "cpu" and importlib.util.find_spec("torch") is not None:
        return [sys.executable]
    return named


def python_or_skip(device: str = "cpu") -> list[str]:
    """Returns the command of a Python whose torch can use a device, or skips the test."""
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
    """A finished program and its recording.

    Attributes:
        done: Exit status, stdout and stderr.
        folder: The folder with its traces.
        truth: The program's own account of its tensors and phases (see programs/truth.py).
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
        """Runs a program to its end, and asserts its exit status.

        Args:
            words: A file of ``programs`` or other arguments of Python; ``{out}`` is replaced by the path of its truth.
            settings: Fields of the recorder's configuration.
            recorded: Whether to record the program.
            status: The expected exit status.
            env: Additional environment variables.

        Returns:
            The finished run.
        """
        self._number += 1
        place = self.folder / f"{self._number}"
        place.mkdir()
        out = place / "truth.json"
        base = self._environment(env) if env else self._plain_environment
        config = Config(**{"folder": str(place / "run"), "backends": (self.device,), **(settings or {})})
        command = [str(PROGRAMS / words[0]) if words[0].endswith(".py") else words[0], *words[1:]]
        done = subprocess.run(
            [*self._command, *(word.replace("{out}", str(out)) for word in command)],
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

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        """Returns the environment of a program that is not recorded."""
        base = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        base.update({"PYTHONDONTWRITEBYTECODE": "1", **more})
        if self.device in PHANTOMS and not (
            os.environ.get(f"MEMDIAG_TEST_{self.device.upper()}_PYTHON")
            and finds_device(tuple(self.python), self.device)
        ):
            base = phantom.environment_for(profiles.choose(PHANTOMS[self.device][1]), self.python, base)
        return base

    @cached_property
    def _plain_environment(self) -> dict[str, str]:
        return self._environment({})

    @cached_property
    def _command(self) -> list[str]:
        """Python, or the command that runs programs in copies of one (tests/forking)."""
        if len(self.python) > 1:
            return self.python
        modules = ["torch_npu"] if self.device == "npu" else []
        return [forking.python_for(self.python[0], *modules)]

    def train(self, *words: str, **more: Any) -> Run:
        """Runs the program that trains a small model."""
        return self("train.py", "{out}", "--device", self.device, *words, **more)


@pytest.fixture
def cpu(tmp_path: Path) -> Recorder:
    """Records programs on the CPU."""
    return Recorder("cpu", tmp_path)


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recorder], Run]:
    """Returns the recording of a small GPT without user hooks, made once per device for the tests that only read it."""
    runs: dict[str, Run] = {}

    def run(recorder: Recorder) -> Run:
        if recorder.device not in runs:
            runs[recorder.device] = Recorder(recorder.device, tmp_path_factory.mktemp("plain")).train("--plain")
        return runs[recorder.device]

    return run


@pytest.fixture(params=DEVICES)
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Records programs on each available device."""
    return Recorder(request.param, tmp_path)


@pytest.fixture(params=DEVICES[1:])
def accelerator(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    """Records programs on each available accelerator."""
    return Recorder(request.param, tmp_path)


class Comparison:
    """Compares a recording with the program's own account of its tensors and phases."""

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
        """Returns the tensor row of each marker; -1 if it was not recorded."""
        born = self.device.tensors.requested_bytes
        found = [np.flatnonzero(born == moment["size"]) for moment in self.truth["moments"]]
        assert all(len(rows) <= 1 for rows in found), "a marker's size is not unique"
        return [int(rows[0]) if len(rows) else -1 for rows in found]

    def at(self, addr: int, moment: int) -> list[int]:
        """Returns the tensors that contain an address at a moment."""
        tensors = self.device.tensors
        row = self.places[moment]
        event = tensors.alloc_at[row]
        alive = (tensors.alloc_at <= event) & (tensors.free_requested_at > event)
        holds = (tensors.addr <= addr) & (addr < tensors.addr + np.maximum(tensors.block_bytes, 1))
        return np.flatnonzero(alive & holds).tolist()

    def wrong_phases(self) -> list[str]:
        """Returns the moments whose recorded phase or step differs from the program's own."""
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
        """Returns the tensors whose recorded memory, category or name differs from the program's own.

        Args:
            categories: The categories to compare; all if empty.
            views: Whether a tensor may be part of a larger one.
        """
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
        """Returns whether a name attributes a tensor to a module, or to an outer one if the events have no times."""
        path = name.split(" ", maxsplit=1)[0]
        return path == module or (self.truth["device"] == "npu" and module.startswith(path + "."))

    def overlapping(self) -> list[tuple[int, int]]:
        """Returns the pairs of tensors that overlap while both are live."""
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
        """Returns the fractions of the bytes live at the peak that have a category and that have a name."""
        device = self.device
        live = device.live(device.peak("allocated"))
        size = device.tensors.requested_bytes[live]
        return (
            float(size[device.tensors.category[live] > 0].sum() / size.sum()),
            float(size[device.tensors.name[live] >= 0].sum() / size.sum()),
        )


@pytest.fixture
def compare() -> type[Comparison]:
    """Returns the class that compares a recording with the program's own account."""
    return Comparison
