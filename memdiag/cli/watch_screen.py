"""Shows the readings of ``memdiag watch``: as a screen that is drawn again, as JSON lines, or once."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from memdiag.cli.talk import look_of, write_out
from memdiag.render import renderer
from memdiag.text import phrase

if TYPE_CHECKING:
    from rich.live import Live

    from memdiag.results.watch import WatchReading
    from memdiag.watch.link import AgentLink
    from memdiag.watch.readings import Readings

_FIRST = 15.0  # seconds to wait for the first reading
_PAUSE = 0.1  # seconds between two looks at the keyboard


class Keys(Protocol):
    """What the keys do."""

    def press(self, key: str) -> str | None:
        """Returns a line to show, or None to end the watch."""


def shows_screen() -> bool:
    """Returns whether stdin and stdout are a terminal that can be drawn on."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def follow(
    link: AgentLink, readings: Readings, *, interval: float, seconds: float | None, as_json: bool, keys: Keys | None
) -> None:
    """Shows readings until the time is over, a key ends it, or the process does.

    Args:
        link: The connection.
        readings: Turns messages into readings.
        interval: Seconds between two readings; 0: one reading.
        seconds: When to end, or None.
        as_json: Whether to print a line of JSON for each.
        keys: What keys do; None: no screen.

    Raises:
        Ended: The process has ended.
    """
    link.read(interval)
    until = None if seconds is None else time.monotonic() + seconds
    if keys is None:
        for reading in _read(link, readings, until, _FIRST):
            write_out(renderer("watch", "json" if as_json else "terminal")(reading, look_of(sys.stdout)))
        return
    _on_screen(link, readings, until, keys)


def each(link: AgentLink, readings: Readings, seconds: float | None) -> Iterator[WatchReading]:
    """Yields readings for a time, or until the process ends.

    Raises:
        Ended: The process has ended.
    """
    return _read(link, readings, None if seconds is None else time.monotonic() + seconds, _FIRST)


def _read(link: AgentLink, readings: Readings, until: float | None, wait: float) -> Iterator[WatchReading]:
    """Yields readings until a time; at least one."""
    num = 0
    while not num or until is None or time.monotonic() < until:
        left = wait if until is None or not num else max(min(until - time.monotonic(), wait), 0.0)
        for message in link.readings(left):
            num += 1
            yield readings.add(message)


def _on_screen(link: AgentLink, readings: Readings, until: float | None, keys: Keys) -> None:
    from rich.console import Console
    from rich.live import Live

    last: WatchReading | None = None
    line = ""
    with _raw(), Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while until is None or time.monotonic() < until:
            for message in link.readings(0.0) if last is not None else link.readings(_FIRST):
                last = readings.add(message)
            if last is not None:
                _draw(live, last, line)
            ready = select.select([sys.stdin, link], [], [], _PAUSE * 10)[0]
            if sys.stdin in ready:
                said = keys.press(os.read(sys.stdin.fileno(), 1).decode("ascii", "replace"))
                if said is None:
                    return
                line = said or line


def _draw(live: Live, reading: WatchReading, line: str) -> None:
    from rich.text import Text

    size = shutil.get_terminal_size()
    rows = renderer("watch", "terminal")(reading, look_of(sys.stdout)).splitlines()[: size.lines - 3]
    rows += [""] * (size.lines - 3 - len(rows))
    live.update(Text.from_ansi("\n".join([*rows, line, phrase("watch.keys")]), no_wrap=True), refresh=True)


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Passes keys on as they are pressed; Ctrl-C still interrupts."""
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
