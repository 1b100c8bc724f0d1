"""Reads a trace for a command, and shows slow steps on stderr: loading memdiag, reading, and the first compilation."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.cli.progress import ProgressLine, bar
from memdiag.cli.talk import busy, say, wipe_line
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.trace.compiling import Compilation
    from memdiag.trace.model import Trace

_MANY_OBJECTS = 50_000  # between two garbage collections; with Python's own value, they take a tenth of a short run
_WORTH_SAYING = 2.0  # seconds of compiling that are announced
_stop_announcing: list[Callable[[], None]] = []


def read_trace(path: Path, lead: str = "") -> Trace:
    """Returns the trace in a file; ``lead`` is the prefix of progress lines on a terminal.

    Raises:
        MemdiagError: The file is not a trace, or cannot be read.
    """
    gc.set_threshold(_MANY_OBJECTS)
    with busy(phrase("progress.loading", lead=lead)):
        from memdiag.sources import load

    announce_compiling(lead)
    _compile_later(lead)
    with busy(phrase("progress.reading", lead=lead, file=str(path))):
        return load(path)


def announce_compiling(lead: str = "") -> None:
    """Announces on stderr how long each compilation will take; on a terminal, shows its progress too."""
    if _stop_announcing:
        _stop_announcing.pop()()
    from memdiag.trace import compiling

    line = ProgressLine()
    announced: dict[str, float] = {}  # seconds by purpose: an estimate is announced again only after it has doubled

    def tell(now: Compilation) -> None:
        if now.has_grown and now.seconds_left >= max(_WORTH_SAYING, 2 * announced.get(now.purpose, 0.0)):
            announced[now.purpose] = now.seconds_left
            wipe_line()
            values = {"lead": lead, "seconds": _rounded(now.seconds_left), "kept": _how_often()}
            replays = now.purpose == "replay traces"
            say(phrase("progress.code.replay" if replays else "progress.code.read", **values))
        elif now.share < 1:
            line(phrase("progress.compiling", lead=lead, bar=bar(now.share), seconds=_rounded(now.seconds_left)))
        else:
            line.__exit__()

    _stop_announcing.append(compiling.watch(tell))


def _compile_later(lead: str) -> None:
    """Makes a first run read small traces without waiting for the compiler, which then runs in the background."""
    from memdiag.trace import first_run

    first_run.turn_on(lambda: say(phrase("progress.background", lead=lead)))


def _rounded(seconds: float) -> int:
    return round(seconds) if seconds < 10 else round(seconds / 5) * 5  # the estimate is not more exact than this


def _how_often() -> str:
    from memdiag.trace import compiled
    from memdiag.trace.temporary import temporary_folder

    folder = compiled.folder_of(compiled.KEPT[-1])
    if folder is None:
        return phrase("progress.code.always")
    temporary = temporary_folder()
    if temporary is not None and folder.is_relative_to(temporary):
        return phrase("progress.code.temporary", folder=str(temporary))
    return phrase("progress.code.once")


@dataclass(frozen=True)
class OnTerminal:
    """Shows the reports of ``memdiag.runs`` on stderr; ``lead`` is the prefix of lines while a trace is read."""

    lead: str = ""

    def say(self, text: str) -> None:
        """Prints a line."""
        say(text)

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Shows a text while the work inside the context runs."""
        return busy(text)

    def read_trace(self, path: Path) -> Trace:
        """Reads a trace.

        Raises:
            MemdiagError: The file is not a trace, or cannot be read.
        """
        return read_trace(path, self.lead)
