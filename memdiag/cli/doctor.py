"""``memdiag doctor``: what can be recorded on this machine, what is missing, and how to get it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memdiag.errors import MemdiagError

if TYPE_CHECKING:
    from memdiag.settings.report import ConfReport

SECONDS = 180  # a cold import of torch from a network drive takes long
_INSTALL = "https://pytorch.org/get-started/locally"
_DEVICE_FILES = {"cuda": ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"), "npu": ("/dev/davinci_manager", "/dev/davinci0")}
_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
}


@dataclass
class Backend:
    """Whether one kind of device can be recorded by one Python.

    Attributes:
        name: "cuda" (also ROCm), "npu" or "cpu".
        works: Whether a test recording saw an allocation; None: it was not tried, there is nothing to try it on.
        num_events: What the test recording saw.
        devices: Names of the devices that can be seen.
        why: Why it does not work, or what it is.
        fix: What to do about it.
    """

    name: str
    works: bool | None = None
    num_events: int | None = None
    devices: list[str] = field(default_factory=list)
    why: str = ""
    fix: str = ""


@dataclass
class Python:
    """One Python and what it has."""

    path: str
    facts: dict[str, Any]
    backends: list[Backend] = field(default_factory=list)
    why: str = ""
    fix: str = ""


def doctor(
    pythons: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="PATH", help="Look at this Python; may be repeated. Left out: those on the PATH and here."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Show what can be recorded on this machine: each Python's torch, its devices, and whether a test recording works.

    Exit code: 0 done, whatever it found; 2 it could not be done.
    """
    from memdiag.cli.talk import busy, write_out

    looked_at: list[Python] = []
    for path in _given(pythons) if pythons else _found():
        with busy(f"looking at {path} …"):
            python = _look(path)
        if not any(_is_same(python, other) for other in looked_at):
            looked_at.append(python)
    settings = _settings(looked_at)
    write_out(_as_json(looked_at, settings) if as_json else "\n".join(_lines(looked_at, settings)) + "\n")


def _given(names: list[str]) -> list[str]:
    paths = []
    for name in names:
        path = shutil.which(name) or shutil.which(str(Path(name, "bin", "python")))
        if path is None:
            raise MemdiagError(f"--python {name}: not a program", "give the path of a Python, or the folder of a virtual environment")
        paths.append(path)
    return paths


def _found() -> list[str]:
    """The Pythons that a command would most likely run here."""
    names = [str(Path(os.environ[name], "bin", "python")) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    paths = [path for name in (*names, "python", "python3") if (path := shutil.which(name))]
    return list(dict.fromkeys([*paths, sys.executable]))


def _is_same(one: Python, other: Python) -> bool:
    return all(one.facts.get(name) == other.facts.get(name) is not None for name in ("prefix", "version"))


def _look(path: str) -> Python:
    """Asks a Python what it has, and tries to record what it has."""
    python = Python(path, {})
    try:
        done = _run([path, "-c", _probe(), "facts"], _environment())
        python.facts = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        python.why, python.fix = f"it did not answer within {SECONDS} s", "try: import torch"
        return python
    except (OSError, ValueError):
        python.why, python.fix = "it does not run, or torch ends it while it is imported", f"try: {path} -c 'import torch'"
        return python
    facts = python.facts
    if _version(facts["version"]) < (3, 9):
        python.why, python.fix = f"Python {facts['version']} is too old: recording needs 3.9", "use a newer Python"
    elif facts["torch_version"] is None:
        missing = "No module named 'torch'" in facts.get("torch_error", "")
        python.why = "torch is not installed" if missing else f"torch cannot be imported: {facts.get('torch_error')}"
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
        backend.why = "this torch is built without it" if name == "cuda" else "torch_npu is not installed"
        if name == "npu" and facts.get("npu_error"):
            backend.why = f"torch_npu cannot be imported: {facts['npu_error']}"
            backend.fix = "source CANN's set_env.sh, and use the torch_npu that belongs to this torch and this CANN"
        elif has_files:
            backend.why += f", but {has_files} is there"
            backend.fix = f"install a torch for {kind}: {_INSTALL}" if name == "cuda" else "install the torch_npu of this torch's version"
        return backend
    if not backend.devices:
        hidden = [f"{variable}={os.environ[variable]}" for variable in _HIDING[name] if variable in os.environ]
        backend.why = f"no device can be seen{': ' + facts['errors'][name] if name in facts['errors'] else ''}"
        backend.why += f" ({', '.join(hidden)})" if hidden else ""
        backend.fix = "look at nvidia-smi or rocm-smi" if name == "cuda" else "look at npu-smi info"
        return backend
    if facts.get(name + "_allocator") not in {None, "native"}:
        backend.works = False
        backend.why = f"the allocator is {facts[name + '_allocator']}: it keeps no history"
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
            backend.works, backend.why = False, f"the test did not end: {error}"
            return
        files = [status.get("files", {}).get(backend.name, {}) for status in statuses(folder)]
    backend.num_events = sum(int(file.get("events", 0)) for file in files)
    backend.works = backend.num_events > 0
    if not backend.works:
        last = done.stderr.strip().splitlines()[-1:] or [f"its exit status is {done.returncode}"]
        backend.why = f"a test recording saw nothing: {last[0]}"
        backend.fix = "MEMDIAG_DEBUG=1 memdiag record -- … shows where it fails"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MEMDIAG_RECORD"}


def _probe() -> str:
    from memdiag import recorder

    return (Path(recorder.__file__).parent / "probe.py").read_text(encoding="utf-8")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Python that the user named
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _settings(pythons: list[Python]) -> list[ConfReport]:
    """What the linter says of the allocator settings in this environment, as each kind of torch here would read them."""
    from memdiag.settings.environment import ALLOC_VARIABLES, check_environment, guess_backend
    from memdiag.settings.model import parse_version
    from memdiag.settings.relations import Scene
    from memdiag.settings.tables import newest

    if not any(name in os.environ for name in (*ALLOC_VARIABLES, "PYTORCH_NO_CUDA_MEMORY_CACHING")):
        return []
    builds: dict[str, str] = {}
    for python in pythons:
        facts = python.facts
        for backend, build in (("hip", facts.get("hip_build")), ("cuda", facts.get("cuda_build")), ("npu", facts.get("npu_build"))):
            if build:
                said = facts["npu_build"] if backend == "npu" else facts["torch_version"]
                builds.setdefault(backend, said)
    if not builds:
        builds = {guess_backend(os.environ): ""}
    platform = "windows" if sys.platform == "win32" else "linux"
    reports = []
    for backend, said in builds.items():
        version = parse_version(said) if said else None
        reports.append(check_environment(os.environ, Scene(backend, version or newest(backend), platform, version is not None)))
    return reports


# ------------------------------------------------------------------------------------------------------------------- shown


def _lines(pythons: list[Python], settings: list[ConfReport]) -> Iterator[str]:
    from memdiag.render.text import plain

    for python in pythons:
        yield plain(f"Python {python.facts.get('version', '')}  {python.path}")
        if python.why:
            yield plain(f"  no   {python.why}")
            yield plain(f"       -> {python.fix}")
        else:
            yield plain(f"       torch {python.facts['torch_version']}{_builds(python.facts)}")
        for backend in python.backends:
            yield from _backend_lines(backend)
        yield ""
    yield "Allocator settings in this environment"
    if not settings:
        yield "       none: the defaults"
    for report in settings:
        yield plain(f"       {report.variable}={report.text}" if report.text is not None else f"       {report.variable} is not set")
        for finding in report.findings:
            yield plain(f"       {finding.code} {finding.severity}: {finding.title}")
        yield "       memdiag conf --env says more" if report.findings else "       nothing wrong with them"
    if any(backend.works for python in pythons for backend in python.backends):
        yield ""
        yield "Record with: memdiag record -- python train.py"


def _builds(facts: dict[str, Any]) -> str:
    named = (("CUDA", facts["cuda_build"]), ("ROCm", facts["hip_build"]), ("torch_npu", facts["npu_build"]))
    return "".join(f", {name} {build}" for name, build in named if build) or ", for the CPU only"


def _backend_lines(backend: Backend) -> Iterator[str]:
    from memdiag.render.text import plain
    from memdiag.units import plural

    state = {True: "yes", False: "no", None: "-"}[backend.works]
    told = f"works: a test recording saw {plural(backend.num_events or 0, 'event')}" if backend.works else backend.why
    devices = f"; {', '.join(dict.fromkeys(backend.devices))}" if backend.devices else ""
    yield plain(f"  {state:<4} {backend.name:<5} {told}{devices}")
    if backend.fix:
        yield plain(f"             -> {backend.fix}")


def _as_json(pythons: list[Python], settings: list[ConfReport]) -> str:
    from memdiag import __version__

    content = {
        "schema_version": 1,
        "memdiag_version": __version__,
        "pythons": [asdict(python) for python in pythons],
        "settings": [asdict(report) for report in settings],
    }
    return json.dumps(content, indent=2, default=str) + "\n"
