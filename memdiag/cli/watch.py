"""``memdiag watch``: follow the memory of a running training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.options import AsJson
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.watch.link import AgentLink
    from memdiag.watch.readings import Readings


def watch(
    process: Annotated[
        str | None,
        typer.Argument(
            metavar="PID|RUN",
            help="Process number, or the directory of a run that memdiag record is recording.",
            show_default=False,
        ),
    ] = None,
    *,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two readings.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one reading and detach.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", min=0.0, help="Detach after N seconds. Default: on q or Ctrl-C."),
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="Record allocations with their call stacks from now on (key h)."),
    ] = False,
    max_events: Annotated[
        int,
        typer.Option(
            "--max-events", metavar="N", min=1, help="Maximum number of recorded events to keep for each device."
        ),
    ] = 200_000,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot",
            metavar="FILE",
            help="File for a trace, written when you press s and when watching ends.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="[HOST]:PORT",
            help="Serve the readings to Prometheus instead of showing them.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="armed|remote_exec|gdb",
            help="How memdiag attaches: memdiag.arm() in the program, sys.remote_exec, or gdb. Default: the first that "
            "works.",
            show_default=False,
        ),
    ] = "",
    arm: Annotated[
        bool,
        typer.Option(
            "--arm", help="Print environment variables with which a program can be watched without a debugger."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Follow the memory of a running training, without restarting or changing it.

    memdiag attaches to a process that it did not start, through memdiag.arm(),
    Python 3.14's sys.remote_exec or gdb. Once a second, it shows reserved,
    allocated and free memory, the growth of memory, and the training steps.
    Press s to write a trace for memdiag analyze, h to record call sites, q to
    detach.

    The program continues unchanged, and memdiag leaves nothing behind in it.

    Exit status: 0 success, also if the process ends meanwhile; 2 error.
    """
    if arm:
        from memdiag.watch.environment import exports

        typer.echo(exports())
        return
    if process is None:
        raise MemdiagError(phrase("watch.no-argument"), phrase("watch.no-argument.hint"))
    _check(snapshot)
    if serve is not None and (once or as_json):
        raise MemdiagError(phrase("watch.serve-with"), phrase("watch.serve-with.hint"))
    from memdiag.cli.watch_screen import follow, shows_screen
    from memdiag.watch.attach import attach
    from memdiag.watch.choose import pid_of
    from memdiag.watch.link import WatchEnded
    from memdiag.watch.readings import Readings

    pid = pid_of(process)
    link = attach(pid, by)
    readings = Readings(link.hello, link.mechanism)
    limit = 0.0 if once else seconds
    try:
        if history:
            start_history(link, max_events)
        if serve is not None:
            _serve(serve, link, readings, interval=interval, seconds=seconds)
        else:
            follow(
                link,
                readings,
                interval=0.0 if once else interval,
                seconds=limit,
                as_json=as_json,
                keys=None if once or as_json or not shows_screen() else _Keys(link, readings, snapshot, max_events),
            )
        if snapshot is not None:
            _write(link, snapshot)
    except WatchEnded:
        _say(phrase("watch.ended-now", pid=f"{pid}"))
    except KeyboardInterrupt:
        if snapshot is not None:
            _write(link, snapshot)
    finally:
        link.close()


def _serve(address: str, link: AgentLink, readings: Readings, *, interval: float, seconds: float | None) -> None:
    """Serves the last reading until the time is over or the process ends."""
    from memdiag.cli.watch_screen import each
    from memdiag.metrics.prometheus import Server
    from memdiag.results.watch import WatchReading
    from memdiag.watch.link import WatchEnded

    last: list[WatchReading | None] = [None]
    link.read(interval)
    found = each(link, readings, seconds)
    last[0] = next(found)  # so that the first scrape has values
    server = Server(address, lambda: last[0])
    try:
        _say(phrase("watch.serving", pid=f"{link.target.pid}", url=server.url))
        for last[0] in found:
            pass
    except WatchEnded:
        last[0] = None
        raise
    finally:
        server.close()


def start_history(link: AgentLink, max_events: int) -> None:
    """Starts the history.

    Raises:
        MemdiagError: It cannot be started.
    """
    failed = link.history(True, max_events).get("failed")
    if failed:
        known = failed if failed in {"recorded", "not-reached"} else "failed"
        raise MemdiagError(
            phrase(f"watch.history.{known}", pid=f"{link.target.pid}", error=str(failed)), phrase("watch.history.hint")
        )


class _Keys:
    """What the keys of the screen do; each returns a line to show."""

    def __init__(self, link: AgentLink, readings: Readings, path: Path | None, max_events: int) -> None:
        self._link = link
        self._path = path
        self._max_events = max_events
        self._on = False
        self._readings = readings

    def press(self, key: str) -> str | None:
        """Does what a key stands for; returns a line to show, or None to detach."""
        if key in {"q", "\x03", "\x04"}:
            return None
        try:
            if key == "s":
                path = self._path or Path(f"watch-{self._link.target.pid}.pkl")
                self._link.snapshot(path)
                return phrase("watch.wrote", path=str(path))
            if key == "h":
                self._on = not self._on
                if self._on:
                    start_history(self._link, self._max_events)
                else:
                    self._link.history(False, 0)
                return ""
        except MemdiagError as error:
            self._on = self._on and key != "h"
            return error.message
        return ""


def _write(link: AgentLink, path: Path) -> None:
    link.snapshot(path)
    _say(phrase("watch.wrote", path=str(path)))


def _say(text: str) -> None:
    from memdiag.cli.talk import say

    say(text)


def _check(path: Path | None) -> None:
    if path is not None and not path.absolute().parent.is_dir():
        raise MemdiagError(phrase("watch.no-folder", path=str(path)), phrase("watch.no-folder.hint"))
