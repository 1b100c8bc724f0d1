"""Runs a command and records it: for ``memdiag record``, and for reruns (``try``, ``--find-max``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import MemdiagError
from memdiag.runs.listener import SILENT, Listener
from memdiag.text import VARIABLE, joined, language, phrase

if TYPE_CHECKING:
    from memdiag.recorder.config import Config
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.recorder.run_folder import RunFolder
    from memdiag.runs.finishing import FinishedRun


@dataclass(frozen=True)
class Order:
    """A command to run, and its recording settings.

    Attributes:
        command: Words of the command.
        settings: Arguments of ``memdiag.recorder.config.Config``, except the folder.
        output: Output location, as for ``memdiag.recorder.run_folder.make``.
        phantom: The simulated device ("npu:910b-64g,capacity=30GiB"), or None for the devices of this machine.
        as_rank, world: On a simulated device, run alone as this rank of a world of this size.
        environment: Additional environment variables.
        has_short_name: Whether the trace of a single process is also available as ./trace.pkl.
        logs: Logs of libraries to switch on, of ``memdiag.runs.libraries.LOGS``.
    """

    command: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None
    phantom: str | None = None
    as_rank: int | None = None
    world: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    has_short_name: bool = True
    logs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """The end of a recorded command.

    Attributes:
        folder: The folder of the run.
        ended: How the command ended.
        run: The recorded run, or None if an error prevented its inspection, which was reported to the listener.
    """

    folder: RunFolder
    ended: ProgramEnd
    run: FinishedRun | None


def perform(
    order: Order, listener: Listener = SILENT, then: Callable[[FinishedRun, ProgramEnd, str], None] | None = None
) -> Done:
    """Runs a command to its end, records it, and finishes the files of the run.

    Args:
        order: The command and how to record it.
        listener: Receives progress.
        then: Called with the finished run, the end of the command, and the reason why nothing could be recorded, or "".
            An error in it is reported to the listener and does not change the result.

    Returns:
        The folder of the run, the end of the command, and the recorded run.

    Raises:
        MemdiagError: The command cannot be started, or the run cannot be written.
    """
    from memdiag.recorder import launch, run_folder

    own = {**os.environ, **order.environment}
    environment = _environment(order, own, listener)
    folder = run_folder.make(order.output)
    if not order.has_short_name:
        folder = replace(folder, single="")
    if order.logs:
        from memdiag.runs.libraries import variables_for

        environment = {**environment, **variables_for(order.logs, folder.path, environment, listener.say)}
    config = _config(order, folder)
    before = _before(list(order.command), listener)
    manifest = _manifest(order, config, own)
    run_folder.write_manifest(folder, manifest)
    _tell_outer(folder)
    try:
        with _cards(order) as cards:
            ended = launch.run(order.command, _with_language(launch.environment_for(config, {**environment, **cards})))
    except MemdiagError:
        run_folder.remove(folder)
        raise
    return Done(folder, ended, _afterwards(folder, manifest, ended, before, listener, then))


def _with_language(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Returns an environment in which the recorder warns in the language of this command."""
    return environment if environment.get(VARIABLE, "en") == language() else {**environment, VARIABLE: language()}


def _environment(order: Order, own: Mapping[str, str], listener: Listener) -> Mapping[str, str]:
    """Returns the environment of the command, before recording adds its variables."""
    if order.phantom is None:
        if order.as_rank is not None or order.world is not None:
            raise MemdiagError(phrase("errors.as-rank"), phrase("errors.as-rank.hint"))
        return own
    from memdiag.phantom.experts import assumed_load
    from memdiag.phantom.launch import COMPUTE, SMALL_BYTES, VALUES, environment_for, same_addresses_from_now_on
    from memdiag.phantom.profiles import choose
    from memdiag.units import format_bytes

    profile = choose(order.phantom)
    with listener.busy(phrase("record.busy.phantom")):
        environment = environment_for(profile, order.command, own, as_rank=order.as_rank, world=order.world)
    same_addresses_from_now_on()
    rank = (
        "" if order.as_rank is None else phrase("record.phantom.rank", rank=str(order.as_rank), world=str(order.world))
    )
    small = int(environment.get(COMPUTE) or SMALL_BYTES)
    facts = {"device": profile.full_name, "rank": rank, "bytes": format_bytes(profile.capacity_bytes)}
    values = phrase(f"record.reads.{environment.get(VALUES) or 'zeros'}")
    if small:
        kind = "small" if environment.get(COMPUTE) else "indices"
        said = phrase(f"record.phantom.{kind}", **facts, values=values, small=format_bytes(small))
    else:
        said = phrase("record.phantom", **facts, values=values)
    if load := assumed_load(environment):
        said = joined([said, phrase("record.phantom.experts", load=load)], "")
    listener.say(f"memdiag: {said}")
    return environment


def _cards(order: Order) -> AbstractContextManager[dict[str, str]]:
    """Returns the variable of the simulated cards that the processes of a command share."""
    from memdiag.phantom.sharing import shared_cards

    return shared_cards() if order.phantom is not None and order.as_rank is None else nullcontext({})


def _config(order: Order, folder: RunFolder) -> Config:
    from memdiag.recorder.config import Config

    return Config(folder=folder.path, **order.settings)


def _before(command: list[str], listener: Listener) -> str:
    """Reports why nothing will be recorded, if the command shows that, and returns the reason."""
    from memdiag.recorder.reach import out_of_reach

    why = out_of_reach(command)
    if why:
        listener.say(f"memdiag: {phrase('record.impossible', why=why)}")
    return why


def _manifest(order: Order, config: Config, own: Mapping[str, str]) -> dict[str, Any]:
    """Returns the manifest before the command has run; ``own`` is its environment without memdiag's variables."""
    import platform
    import time
    from dataclasses import asdict

    from memdiag.recorder import private
    from memdiag.version import __version__

    phantom = None
    if order.phantom is not None:
        phantom = {"device": order.phantom, "as_rank": order.as_rank, "world": order.world}
    return {
        "format": 1,
        "status": "running",
        "argv": private.arguments(order.command),
        "cwd": str(Path.cwd()),
        "settings": asdict(config),
        "phantom": phantom,
        "environment": private.environment(own),
        "host": platform.node(),
        "pid": os.getpid(),
        "versions": {
            "memdiag": __version__,
            "memdiag_python": platform.python_version(),
            "system": platform.platform(),
        },
        "start": time.time(),
        "end": None,
        "exit_status": None,
        "processes": [],
    }


def _tell_outer(folder: RunFolder) -> None:
    """Leaves a note for an outer ``memdiag record`` that runs this one.

    The inner command records the processes below it; the outer one does not.
    """
    from memdiag.recorder import config, presence
    from memdiag.recorder.files import write_json

    outer = config.from_environment()
    if outer is not None and outer.folder:
        write_json(str(Path(outer.folder, presence.FOLDER, f"nested-{os.getpid()}.json")), {"nested": folder.path})


def _afterwards(
    folder: RunFolder,
    manifest: dict[str, Any],
    ended: ProgramEnd,
    before: str,
    listener: Listener,
    then: Callable[[FinishedRun, ProgramEnd, str], None] | None,
) -> FinishedRun | None:
    """Finishes the files of a run. The exit status is the command's in any case."""
    try:
        from memdiag.runs.finishing import finish

        run = finish(folder, manifest, ended)
        if then is not None:
            then(run, ended, before)
    except KeyboardInterrupt:
        return None
    except Exception as error:  # noqa: BLE001 - see the docstring
        why = f"{type(error).__name__}: {error}"
        listener.say(f"memdiag: {phrase('record.no_summary', why=why, folder=folder.shown)}")
        if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"} and sys.stderr is not None:
            import traceback

            traceback.print_exc()
        return None
    return run
