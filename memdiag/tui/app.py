"""The application behind ``memdiag view``: reads and diagnoses in a thread, while one screen is shown."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.message import Message

from memdiag.results.report import Report
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.moments import DEFAULT
from memdiag.tui.main import MainScreen
from memdiag.tui.walk import Walk

_DELAY = 0.06  # seconds of rest before lists follow the moment: a held key changes only the moment


class Viewer(App[None]):
    """Application for browsing a trace.

    Args:
        title: Name of the file.
        read: Returns the trace; runs in a thread.
        diagnose: Returns the report of a trace; runs in the same thread, while the trace is on the screen.
        at: Initial moment, see ``Walk``.
        device: Initial device.
        delay: Seconds before lists follow the moment.

    Attributes:
        failure: The error that ended it, if reading failed.
        copied: Lines that the user copied, in order.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    class Loaded(Message):
        """The trace has been read."""

        def __init__(self, walk: Walk) -> None:
            super().__init__()
            self.walk = walk

    class Diagnosed(Message):
        """The diagnosis is complete, or failed."""

        def __init__(self, report: Report | None, error: str = "") -> None:
            super().__init__()
            self.report = report
            self.error = error

    class Failed(Message):
        """The trace cannot be read."""

        def __init__(self, error: BaseException) -> None:
            super().__init__()
            self.error = error

    def __init__(
        self,
        title: str,
        read: Callable[[], Trace],
        diagnose: Callable[[Trace], Report],
        *,
        at: str | int = DEFAULT,
        device: int | None = None,
        delay: float = _DELAY,
    ) -> None:
        # With NO_COLOR, textual would still use greys, unless it uses the terminal's own colours.
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")))
        self.title = title
        self._read = read
        self._diagnose = diagnose
        self._start = at, device
        self.delay = delay
        self.failure: BaseException | None = None
        self.copied: list[str] = []
        self._began = time.monotonic()
        # A daemon thread, so that quitting does not wait for a diagnosis that is no longer needed.
        self.work = threading.Thread(target=self._work, name="reading", daemon=True)

    def on_mount(self) -> None:
        """Shows the screen and starts to read."""
        self.main = MainScreen(self.title, self.delay, self.copy_line)
        self.push_screen(self.main)
        self.work.start()
        self._clock = self.set_interval(0.25, self._tick)

    def _tick(self) -> None:
        self.main.say_busy(time.monotonic() - self._began)

    def _work(self) -> None:
        try:
            trace = self._read()
            walk = Walk(trace, *self._start)
        except BaseException as error:  # noqa: BLE001 - raised again where the command can report it
            self.post_message(self.Failed(error))
            return
        self.post_message(self.Loaded(walk))
        try:
            self.post_message(self.Diagnosed(self._diagnose(trace)))
        except Exception as error:  # noqa: BLE001 - the trace can be viewed without a diagnosis
            self.post_message(self.Diagnosed(None, phrase("screen.failed", error=str(error))))

    def on_viewer_loaded(self, message: Loaded) -> None:
        """Shows the trace."""
        self.main.show_trace(message.walk)

    def on_viewer_diagnosed(self, message: Diagnosed) -> None:
        """Shows the diagnosis."""
        self._clock.stop()
        self.main.show_report(message.report, message.error)

    def on_viewer_failed(self, message: Failed) -> None:
        """Ends the application."""
        self.failure = message.error
        self.exit()

    def copy_line(self, line: str) -> None:
        """Copies a line to the clipboard, if the terminal supports it (OSC 52)."""
        self.copy_to_clipboard(line)
        if line not in self.copied:
            self.copied.append(line)
