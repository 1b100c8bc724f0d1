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
from memdiag.text import phrase

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
            raise MemdiagError(phrase("errors.python", name=str(name)), phrase("errors.python.hint"))
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
    """Returns what can be recorded on this machine, and how each torch would read the settings in ``environ``.

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
        python.reason, python.fix = (
            phrase("doctor.reason.silent", seconds=SECONDS),
            phrase("doctor.fix.try", command="import torch"),
        )
        return python
    except (OSError, ValueError):
        python.reason, python.fix = (
            phrase("doctor.reason.broken"),
            phrase("doctor.fix.try", command=f"{path} -c 'import torch'"),
        )
        return python
    facts = python.facts
    if _version(facts["version"]) < (3, 9):
        python.reason = phrase("doctor.reason.old", version=facts["version"])
        python.fix = phrase("doctor.fix.old")
    elif facts["torch_version"] is None:
        missing = "No module named 'torch'" in facts.get("torch_error", "")
        error = str(facts.get("torch_error"))
        python.reason = (
            phrase("doctor.reason.no-torch") if missing else phrase("doctor.reason.torch-error", error=error)
        )
        python.fix = phrase("doctor.fix.torch", path=path, url=_INSTALL)
    else:
        python.backends = [_accelerator(path, facts, "cuda"), _accelerator(path, facts, "npu"), _cpu(path)]
    return python


def _accelerator(path: str, facts: dict[str, Any], name: str) -> Backend:
    backend = Backend(name, devices=list(facts["devices"].get(name, [])))
    has_files = next((file for file in _DEVICE_FILES[name] if Path(file).exists()), None)
    build = facts["cuda_build"] or facts["hip_build"] if name == "cuda" else facts["npu_build"]
    kind = {"cuda": "CUDA or ROCm", "npu": "Ascend NPUs"}[name]
    if not build:
        backend.reason = phrase("doctor.reason.no-build" if name == "cuda" else "doctor.reason.no-torch-npu")
        if name == "npu" and facts.get("npu_error"):
            backend.reason = phrase("doctor.reason.npu-error", error=facts["npu_error"])
            backend.fix = phrase("doctor.fix.npu-error")
        elif has_files:
            backend.reason = phrase("doctor.reason.device-file", reason=backend.reason, file=has_files)
            backend.fix = (
                phrase("doctor.fix.cuda-build", kind=kind, url=_INSTALL)
                if name == "cuda"
                else phrase("doctor.fix.npu-build")
            )
        return backend
    if not backend.devices:
        hidden = [f"{variable}={os.environ[variable]}" for variable in _HIDING[name] if variable in os.environ]
        backend.reason = phrase("doctor.reason.no-device")
        if name in facts["errors"]:
            backend.reason = phrase("doctor.reason.no-device.error", error=facts["errors"][name])
        if hidden:
            backend.reason = phrase("doctor.reason.hidden", reason=backend.reason, variables=", ".join(hidden))
        backend.fix = phrase("doctor.fix.cuda-device" if name == "cuda" else "doctor.fix.npu-device")
        return backend
    if facts.get(name + "_allocator") not in {None, "native"}:
        backend.works = False
        backend.reason = phrase("doctor.reason.allocator", name=facts[name + "_allocator"])
        backend.fix = phrase("doctor.fix.allocator")
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
            backend.works, backend.reason = False, phrase("doctor.reason.unfinished", error=str(error))
            return
        files = [status.get("files", {}).get(backend.name, {}) for status in statuses(folder)]
    backend.num_events = sum(int(file.get("events", 0)) for file in files)
    backend.works = backend.num_events > 0
    if not backend.works:
        last = done.stderr.strip().splitlines()[-1:] or [phrase("doctor.reason.status", status=str(done.returncode))]
        backend.reason = phrase("doctor.reason.nothing", error=last[0])
        backend.fix = phrase("doctor.fix.nothing")


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
