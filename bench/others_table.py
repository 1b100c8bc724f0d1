"""The programs of other people in programs_of_others.toml, and their copies that are ready to run."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import synthetic_data

HERE = Path(__file__).parent
TABLE = HERE / "programs_of_others.toml"
BY_HAND = HERE / "programs_by_hand.json"  # written by programs/by_hand.py
COUNTED = HERE / "programs_counted.json"  # written by programs_counted.py
KINDS = ("cpu", "cuda", "npu")
AS_ON_GPU = ", as on a GPU"  # ends the name of a count
WORKSPACE = 32 << 20  # of cuBLAS on Hopper, for each thread that multiplies matrices


@dataclass(frozen=True)
class Program:
    """One program of the table.

    Attributes:
        family: What it is listed under.
        name: What it does, in a few words.
        source: Key of the table's ``sources``; "" for a script of bench/programs that calls a package.
        folder: Folder inside the source, where the command runs.
        command: The script and its arguments.
        cpu: Arguments that are added on the CPU.
        cuda: Arguments that are added on CUDA.
        counted: Arguments that are added when programs_counted.py counts it on the CPU, with the sizes that it has on
            CUDA; needed where its kinds lack the CPU.
        npu: "as is", "transfer" (through torch_npu's transfer_to_npu), or "" where it is not run.
        npu_arguments: Arguments that are added on an NPU.
        kinds: Kinds of devices on which it runs at all.
        ranks: Processes of torchrun; 0: none.
        devices: Simulated devices that a process sees, if it starts others itself; 0: as many as ranks.
        data: Function of synthetic_data that makes its data set.
        prepare: Script of bench/programs that makes its model and data; it runs in the folder before, unrecorded.
        without: Folder of data sets that is left out of the copy, because clones lack its large files.
        options: Options of ``memdiag record`` on a phantom device.
    """

    family: str
    name: str
    command: str
    source: str = ""
    folder: str = "."
    cpu: str = ""
    cuda: str = ""
    counted: str = ""
    npu: str = ""
    npu_arguments: str = ""
    kinds: tuple[str, ...] = KINDS
    ranks: int = 0
    devices: int = 0
    data: str = ""
    prepare: str = ""
    without: str = ""
    options: tuple[str, ...] = ()

    def parts_by_hand(self, kind: str) -> dict[str, int]:
        """The parts of the peak, counted without memdiag, in bytes; empty where nobody counted.

        The first that exists: the count of a whole run as on a GPU; that of a run on the CPU (programs_counted.py);
        that of one step on fake tensors (programs/by_hand.py). On CUDA, a run has workspaces of cuBLAS, too.
        """
        counted = self.counted_for(kind)
        if counted:
            parts = dict(counted["all" if kind == "cpu" else "tensors"])
            parts["temporary tensors"] += parts.pop("scratch memory")
            return {**parts, "workspaces": len(counted["threads"]) * WORKSPACE} if kind == "cuda" else parts
        parts = read(BY_HAND).get(f"{self.family} {self.name}", {}) if self.has_same_sizes else {}
        return {part: size for part, size in parts.items() if kind == "cuda" or part != "workspaces"}

    def convolves(self, kind: str) -> bool:
        """Whether it is known to run convolutions, whose scratch memory on a GPU is not counted."""
        return bool(self.counted_for(kind).get("convolves"))

    @property
    def has_same_sizes(self) -> bool:
        """Whether its sizes on the CPU are those on other devices."""
        return not self.cpu.startswith("--device=cpu")

    @property
    def counts(self) -> tuple[str, ...]:
        """Kinds of devices for which programs_counted.py counts it: "cpu", and "cuda" as on a GPU."""
        on_cpu = not self.ranks and not self.devices and ("cpu" in self.kinds or bool(self.counted))
        return (*(("cpu",) if on_cpu else ()), *(("cuda",) if "cuda" in self.kinds else ()))

    def counted_for(self, kind: str) -> dict[str, Any]:
        """Its count for a kind of device; empty if there is none."""
        name = f"{self.family} {self.name}"
        on_gpu: dict[str, Any] = read(COUNTED).get(name + AS_ON_GPU, {}) if kind != "cpu" else {}
        is_other = kind != "cpu" and not self.has_same_sizes
        return on_gpu or ({} if is_other else read(COUNTED).get(name, {}))

    @property
    def launcher(self) -> list[str]:
        """The arguments of Python that start its ranks."""
        one = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        return one if self.ranks else []

    def runs_on(self, kind: str) -> bool:
        """Whether the program is tried on this kind of device."""
        return kind in self.kinds and (kind != "npu" or bool(self.npu))

    def words(self, kind: str, python: str) -> list[str]:
        """The command for a kind of device."""
        script, *arguments = self.command.split()
        path = str(HERE / "programs" / script) if not self.source else script
        extra = {"cpu": self.cpu, "cuda": self.cuda, "npu": self.npu_arguments}[kind].split()
        wrapper = [str(HERE / "programs" / "on_npu.py")] if kind == "npu" and self.npu == "transfer" else []
        if wrapper:
            path = str(Path(path).absolute()) if not self.source else f"{{here}}/{path}"
        return [python, *self.launcher, *wrapper, path, *arguments, *extra]


@cache
def read(file: Path) -> dict[str, Any]:
    """The counts of a file."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def read_table() -> tuple[dict[str, str], list[Program]]:
    """The commits of the sources, and the programs."""
    table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    lists = ("kinds", "options")
    programs = [
        Program(**{key: tuple(value) if key in lists else value for key, value in one.items()})
        for one in table["program"]
    ]
    return table["sources"], programs


def environment_of(kind: str) -> dict[str, str]:
    """The variables of a run: no downloads; one thread and one order of sets, so that requests come in one order."""
    own = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "MPLBACKEND": "Agg"}
    own |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if kind == "cpu" else {}
    return {**os.environ, **own, **hidden}


def copy_source(clone: Path, commit: str, program: Program, folder: Path) -> None:
    """Unpacks a program's part of a commit of a clone into a folder; a clone may lack large files elsewhere."""
    parts = [program.folder, *([f":(exclude){program.folder}/{program.without}"] if program.without else [])]
    git, tar = (shutil.which(name) or name for name in ("git", "tar"))
    packed = subprocess.run([git, "-C", str(clone), "archive", commit, *parts], capture_output=True, check=True)
    subprocess.run([tar, "-x", "-C", str(folder)], input=packed.stdout, check=True)


def prepare(program: Program, folder: Path, environment: Mapping[str, str], python: str) -> None:
    """Makes the model and the data of a program, unrecorded and on the CPU."""
    if program.prepare:
        hidden = {**environment, "CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        made = [python, str(HERE / "programs" / program.prepare)]
        subprocess.run(made, cwd=folder, env=hidden, capture_output=True, check=True)


@dataclass(frozen=True)
class Unpacked:
    """A program that is ready to run.

    Attributes:
        folder: Where it runs.
        environment: Its variables.
        words: Its command.
    """

    folder: Path
    environment: dict[str, str]
    words: list[str]


def unpack(program: Program, kind: str, given: argparse.Namespace, commits: Mapping[str, str], to: Path) -> Unpacked:
    """Copies a program into a new folder, and makes its model and data.

    Args:
        program: The program.
        kind: Kind of the device.
        given: Has the folder of the clones (sources) and the interpreter (python).
        commits: The commits of the sources.
        to: The folder.
    """
    to.mkdir()
    if program.source:
        copy_source(given.sources / program.source.rpartition("/")[2], commits[program.source], program, to)
    folder = to / program.folder
    if program.data:
        getattr(synthetic_data, program.data)(folder)
    environment = {**environment_of(kind), "PYTHONPATH": f"{HERE.parent}{os.pathsep}{to}"}
    prepare(program, folder, environment, given.python)
    words = [word.replace("{here}", str(folder)) for word in program.words(kind, given.python)]
    return Unpacked(folder, environment, words)
