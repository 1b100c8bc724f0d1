"""Finds what can be recorded on this machine: each Python, its torch, its devices, and a test recording of each.

Nothing is initialised in this process: each Python is queried in a separate process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.results.machine import Backend, MachineReport, Python

SECONDS = 180  # a cold import of torch from a network drive takes long
_INSTALL = "https://pytorch.org/get-started/locally"
_DEVICE_FILES = {"cuda": ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"), "npu": ("/dev/davinci_manager", "/dev/davinci0")}
_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
}


def given(names: list[str]) -> list[str]:
    """Returns the Pythons with the given names: paths, or environment folders.

    Raises:
        MemdiagError: A Python of that name does not exist.
    """
    paths = []
    for name in names:
        path = shutil.which(name) or shutil.which(str(Path(name, "bin", "python")))
        if path is None:
            raise MemdiagError(
                f"--python {name}: not a program", "give the path of a Python, or the folder of a virtual environment"
            )
        paths.append(path)
    return paths


def found() -> list[str]:
    """Returns the Pythons that a command would most likely run here."""
    names = [
        str(Path(os.environ[name], "bin", "python")) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)
    ]
    paths = [path for name in (*names, "python", "python3") if (path := shutil.which(name))]
    return list(dict.fromkeys([*paths, sys.executable]))


def is_same(one: Python, other: Python) -> bool:
    """Returns whether both are the same Python."""
    return all(one.facts.get(name) == other.facts.get(name) is not None for name in ("prefix", "version"))


def survey_machine(
    names: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    busy: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> MachineReport:
    """Returns what can be recorded on this machine, and how each torch would read the allocator settings in ``environ``.

    Args:
        names, busy: As for ``survey``.
        environ: Variables and their values.

    Raises:
        MemdiagError: A Python of a given name does not exist.
    """
    from memdiag.settings.environment import check_builds

    pythons = survey(names, busy)
    platform = "windows" if sys.platform == "win32" else "linux"
    settings = check_builds(environ, [python.facts for python in pythons], platform)
    return MachineReport(tuple(pythons), tuple(settings))


def survey(
    names: Sequence[str] = (), busy: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
) -> list[Python]:
    """Queries Pythons and tries to record with each; the same Python under two names is queried once.

    Args:
        names: Pythons, by path or environment folder; empty for those that a command would most likely run here.
        busy: Shows the path of a Python while it is queried.

    Raises:
        MemdiagError: A Python of a given name does not exist.
    """
    pythons: list[Python] = []
    for path in given(list(names)) if names else found():
        with busy(path):
            python = look(path)
        if not any(is_same(python, other) for other in pythons):
            pythons.append(python)
    return pythons


def look(path: str) -> Python:
    """Queries a Python for its devices, and tries a test recording on each."""
    python = Python(path, {})
    try:
        done = _run([path, "-c", _probe(), "facts"], _environment())
        python.facts = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        python.reason, python.fix = f"it did not answer within {SECONDS} s", "try: import torch"
        return python
    except (OSError, ValueError):
        python.reason, python.fix = (
            "it does not run, or torch ends it while it is imported",
            f"try: {path} -c 'import torch'",
        )
        return python
    facts = python.facts
    if _version(facts["version"]) < (3, 9):
        python.reason, python.fix = f"Python {facts['version']} is too old: recording needs 3.9", "use a newer Python"
    elif facts["torch_version"] is None:
        missing = "No module named 'torch'" in facts.get("torch_error", "")
        python.reason = "torch is not installed" if missing else f"torch cannot be imported: {facts.get('torch_error')}"
        python.fix = f"{path} -m pip install torch ({_INSTALL}), or --python PATH for the Python that you train with"
    else:
        python.backends = [_accelerator(path, facts, "cuda"), _accelerator(path, facts, "npu"), _cpu(path)]
    return python


def _accelerator(path: str, facts: dict[str, Any], name: str) -> Backend:
    backend = Backend(name, devices=list(facts["devices"].get(name, [])))
    has_files = next((file for file in _DEVICE_FILES[name] if Path(file).exists()), None)
    build = facts["cuda_build"] or facts["hip_build"] if name == "cuda" else facts["npu_build"]
    kind = {"cuda": "CUDA or ROCm", "npu": "Ascend NPUs"}[name]
    if not build:
        backend.reason = "this torch is built without it" if name == "cuda" else "torch_npu is not installed"
        if name == "npu" and facts.get("npu_error"):
            backend.reason = f"torch_npu cannot be imported: {facts['npu_error']}"
            backend.fix = "source CANN's set_env.sh, and use the torch_npu that belongs to this torch and this CANN"
        elif has_files:
            backend.reason += f", but {has_files} is there"
            backend.fix = (
                f"install a torch for {kind}: {_INSTALL}"
                if name == "cuda"
                else "install the torch_npu of this torch's version"
            )
        return backend
    if not backend.devices:
        hidden = [f"{variable}={os.environ[variable]}" for variable in _HIDING[name] if variable in os.environ]
        backend.reason = f"no device can be seen{': ' + facts['errors'][name] if name in facts['errors'] else ''}"
        backend.reason += f" ({', '.join(hidden)})" if hidden else ""
        backend.fix = "look at nvidia-smi or rocm-smi" if name == "cuda" else "look at npu-smi info"
        return backend
    if facts.get(name + "_allocator") not in {None, "native"}:
        backend.works = False
        backend.reason = f"the allocator is {facts[name + '_allocator']}: it keeps no history"
        backend.fix = "leave out backend: in the allocator settings, and pluggable allocators"
        return backend
    _try(path, backend)
    return backend


def _cpu(path: str) -> Backend:
    backend = Backend("cpu")
    _try(path, backend)
    return backend


def _try(path: str, backend: Backend) -> None:
    """Records a program that allocates once."""
    from memdiag.recorder.config import Config
    from memdiag.recorder.launch import environment_for
    from memdiag.recorder.run_folder import statuses

    with tempfile.TemporaryDirectory(prefix="memdiag-doctor-") as folder:
        config = Config(folder, backends=(backend.name,))
        try:
            done = _run([path, "-c", _probe(), "allocate", backend.name], environment_for(config, _environment()))
        except (OSError, subprocess.TimeoutExpired) as error:
            backend.works, backend.reason = False, f"the test did not end: {error}"
            return
        files = [status.get("files", {}).get(backend.name, {}) for status in statuses(folder)]
    backend.num_events = sum(int(file.get("events", 0)) for file in files)
    backend.works = backend.num_events > 0
    if not backend.works:
        last = done.stderr.strip().splitlines()[-1:] or [f"its exit status is {done.returncode}"]
        backend.reason = f"a test recording saw nothing: {last[0]}"
        backend.fix = "MEMDIAG_DEBUG=1 memdiag record -- … shows where it fails"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MEMDIAG_RECORD"}


def _probe() -> str:
    from memdiag import recorder

    return (Path(recorder.__file__).parent / "probe.py").read_text(encoding="utf-8")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Python that the user named
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
