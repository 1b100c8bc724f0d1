"""``memdiag doctor``: what can be recorded on this machine, what is missing, and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from memdiag.recorder.machine import Python
    from memdiag.results.conf import ConfReport


def doctor(
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--python", metavar="PATH", help="Check this Python; can be repeated. Default: those on the PATH and in this directory."
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Check what can be recorded here: torch and devices of each Python, and a test recording.

    Exit status: 0 success, whatever it finds; 2 error.
    """
    import sys

    from memdiag.cli.talk import busy, look_of, write_out
    from memdiag.recorder.machine import found, given, is_same, look
    from memdiag.render import renderer

    looked_at: list[Python] = []
    for path in given(pythons) if pythons else found():
        with busy(f"looking at {path} …"):
            python = look(path)
        if not any(is_same(python, other) for other in looked_at):
            looked_at.append(python)
    settings = _settings(looked_at)
    write_out(renderer("doctor", "json" if as_json else "terminal")(looked_at, settings, look_of(sys.stdout)))


def _settings(pythons: list[Python]) -> list[ConfReport]:
    """What the linter says of the allocator settings in this environment, as each kind of torch here would read them."""
    import os
    import sys

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
