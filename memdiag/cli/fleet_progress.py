"""Shows the progress of ``memdiag fleet`` on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from memdiag.cli.loading import announce_compiling
from memdiag.cli.progress import ProgressLine, bar
from memdiag.cli.talk import busy, say
from memdiag.fleet.run import FleetListener, OnProgress
from memdiag.text import phrase


class OnTerminalFleet(FleetListener):
    """Shows the progress of a diagnosis on stderr."""

    def say(self, text: str) -> None:
        """Prints a line."""
        say(text)

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Shows a text while the work inside the context runs."""
        return busy(text)

    def announce_compiling(self) -> None:
        """Prints how long compiling will take, if code must be compiled."""
        announce_compiling()

    @contextmanager
    def reading(self, num_files: int, *, is_kept: bool) -> Iterator[OnProgress]:
        """Shows how many files have been read; on Ctrl-C, prints whether results are kept."""
        done = 0
        with ProgressLine() as line:

            def on_progress(number: int, most: int, broken: int) -> None:
                nonlocal done
                done = number
                unread = phrase("progress.files.broken", count=broken) if broken else ""
                line(phrase("progress.files", bar=bar(number / most), count=number, most=most, broken=unread))

            try:
                yield on_progress
            except KeyboardInterrupt:
                line.__exit__()
                kept = phrase("progress.interrupted.kept") if is_kept else phrase("progress.interrupted.lost")
                self.say(phrase("progress.interrupted", count=done, most=num_files, kept=kept))
                raise

    @contextmanager
    def tuning(self) -> Iterator[tuple[OnProgress, Callable[[int, int], None]]]:
        """Shows the progress of the search for a setting."""
        with ProgressLine() as line:
            yield (
                lambda done, most, _: line(phrase("progress.replayed", bar=bar(done / most), count=done, most=most)),
                lambda done, most: line(phrase("progress.searching", bar=bar(done / most), count=done, most=most)),
            )
