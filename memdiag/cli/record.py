"""``memdiag record``: runs a command and records what every Python process below it that uses torch allocates."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memdiag.errors import MemdiagError

if TYPE_CHECKING:
    from memdiag.recorder.config import Config
    from memdiag.recorder.launch import Ended
    from memdiag.recorder.run_folder import RunFolder

_STEPS = re.compile(r"(\d*):(\d*)")


def record(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND …", help="What you would type without memdiag.", show_default=False)
    ] = None,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR|FILE.pkl",
            help="The folder of the run, or the file for the trace of a run of one process.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", metavar="cuda|npu|cpu", help="Record these; left out: the accelerators in use, else the CPU."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="FROM:TO", help="Only these training steps, TO not included.", show_default=False)
    ] = None,
    every: Annotated[
        int, typer.Option("--every", metavar="N", min=0, help="Write the files every N steps; 0: at the end.", show_default=False)
    ] = 0,
    max_events: Annotated[
        int, typer.Option("--max-events", metavar="N", min=1, help="Entries kept per device, the last ones.")
    ] = 2_000_000,
    phantom: Annotated[
        str | None,
        typer.Option(
            "--phantom",
            metavar="DEVICE",
            help="On a device that is not there, for example npu:910b-64g (memdiag devices).",
            show_default=False,
        ),
    ] = None,
    as_rank: Annotated[
        int | None,
        typer.Option("--as-rank", metavar="K", min=0, help="With --phantom: be this rank of --world N, alone.", show_default=False),
    ] = None,
    world: Annotated[
        int | None, typer.Option("--world", metavar="N", min=1, help="With --phantom: how many ranks there are.", show_default=False)
    ] = None,
    no_names: Annotated[bool, typer.Option("--no-names", help="Do not look for the names of tensors.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary afterwards.")] = False,
) -> None:
    """Run a command and record its memory, for example: memdiag record -- python train.py.

    Works for python -m, torchrun, accelerate, deepspeed and shell scripts: every Python process below that uses torch is recorded.
    Nothing in the program is changed, and its output, input, signals and exit status are its own.

    It leaves memdiag-<run>/rank<k>.pkl (PyTorch snapshots with names, phases and steps) and, for one process, trace.pkl. Then: memdiag
    analyze.

    Exit code: the command's own; 127 it was not found, 126 it could not be run; 2 the run cannot be written.
    """
    if not command:
        raise MemdiagError("there is no command to record", "memdiag record [options] -- python train.py")
    from memdiag.recorder import launch, run_folder

    settings = _settings(backend or [], steps, every, max_events, names=not no_names)
    environment = _environment(phantom, as_rank, world, command)
    folder = run_folder.make(output)
    config = _config(settings, folder)
    before = _before(command)
    manifest = _manifest(command, config, environment)
    run_folder.write_manifest(folder, manifest)
    _tell_outer(folder)
    try:
        ended = launch.run(command, launch.environment_for(config, environment))
    except MemdiagError:
        run_folder.remove(folder)
        raise
    _afterwards(folder, manifest, ended, before, quiet=quiet)
    raise typer.Exit(launch.end_as(ended))


def _environment(phantom: str | None, as_rank: int | None, world: int | None, command: list[str]) -> Mapping[str, str]:
    """Returns the environment in which the command is started, before what recording adds."""
    if phantom is None:
        if as_rank is not None or world is not None:
            raise MemdiagError("--as-rank and --world need --phantom", "for example --phantom npu:910b-64g --as-rank 517 --world 1024")
        return os.environ
    from memdiag.cli.talk import busy, say
    from memdiag.phantom.launch import environment_for
    from memdiag.phantom.profiles import choose
    from memdiag.units import format_bytes

    profile = choose(phantom)
    with busy("preparing the phantom device …"):
        environment = environment_for(profile, command, as_rank=as_rank, world=world)
    rank = "" if as_rank is None else f" as rank {as_rank} of {world}"
    say(
        f"memdiag: on a phantom {profile.full_name}{rank}, {format_bytes(profile.capacity_bytes)} for PyTorch: nothing is computed, and "
        "what the device computes reads as zeros"
    )
    return environment


def _settings(backends: list[str], steps: str | None, every: int, max_events: int, *, names: bool) -> dict[str, Any]:
    from memdiag.recorder.config import BACKENDS

    chosen = tuple(dict.fromkeys(word.strip().lower() for item in backends for word in item.split(",")))
    for word in chosen:
        if word not in BACKENDS:
            raise MemdiagError(f"--backend {word}: not known", f"one of {', '.join(BACKENDS)}; may be repeated")
    first, last = 0, None
    if steps is not None:
        match = _STEPS.fullmatch(steps.strip())
        if match is None or (match[2] and int(match[2]) <= int(match[1] or 0)):
            raise MemdiagError(f"--steps {steps}: not a range of steps", "for example --steps 3:6 (steps 3, 4 and 5), 10: or :5")
        first, last = int(match[1] or 0), int(match[2]) if match[2] else None
    return {
        "backends": chosen, "every": every, "max_events": max_events, "first_step": first, "last_step": last, "names": names,
    }  # fmt: skip


def _config(settings: dict[str, Any], folder: RunFolder) -> Config:
    from memdiag.recorder.config import Config

    return Config(folder=folder.path, **settings)


def _before(command: list[str]) -> str:
    """Says why nothing will be recorded, if that can be told from the command; returns it."""
    from memdiag.cli.talk import say
    from memdiag.recorder.reach import out_of_reach

    why = out_of_reach(command)
    if why:
        say(f"memdiag: nothing can be recorded: {why}")
    return why


def _manifest(command: list[str], config: Config, environment: Mapping[str, str]) -> dict[str, Any]:
    import platform
    import time
    from dataclasses import asdict

    from memdiag import __version__
    from memdiag.recorder import private

    return {
        "format": 1, "status": "running", "argv": private.arguments(command), "cwd": str(Path.cwd()), "settings": asdict(config),
        "environment": private.environment(environment), "host": platform.node(), "pid": os.getpid(),
        "versions": {"memdiag": __version__, "memdiag_python": platform.python_version(), "system": platform.platform()},
        "start": time.time(), "end": None, "exit_status": None, "processes": [],
    }  # fmt: skip


def _tell_outer(folder: RunFolder) -> None:
    """Leaves a word for an outer ``memdiag record`` in whose command this one runs: what is below is recorded here, and not there."""
    from memdiag.recorder import config, presence
    from memdiag.recorder.files import write_json

    outer = config.from_environment()
    if outer is not None and outer.folder:
        write_json(str(Path(outer.folder, presence.FOLDER, f"nested-{os.getpid()}.json")), {"nested": folder.path})


def _afterwards(folder: RunFolder, manifest: dict[str, Any], ended: Ended, before: str, *, quiet: bool) -> None:
    """Finishes the files and says what there is. Whatever happens here, the exit status is the command's."""
    try:
        from memdiag.cli.after_run import finish, tell

        run = finish(folder, manifest, ended)
        if not quiet:
            tell(run, ended, before)
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001 - as the docstring says
        from memdiag.cli.talk import say

        say(f"memdiag: no summary: {type(error).__name__}: {error}; the files are in {folder.shown}")
        if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"} and sys.stderr is not None:
            import traceback

            traceback.print_exc()
