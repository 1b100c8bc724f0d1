"""Progress of long commands: the functions of this package report to a listener, which decides what to show."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from memdiag.trace.model import Trace


class Listener(Protocol):
    """Receives progress."""

    def say(self, text: str) -> None:
        """Shows one line."""
        ...

    def busy(self, text: str) -> AbstractContextManager[None]:
        """Shows a text while the work inside the context runs."""
        ...

    def read_trace(self, path: Path) -> Trace:
        """Reads a trace and shows the progress.

        Raises:
            MemdiagError: It is not a trace, or cannot be read.
        """
        ...


class Silent:
    """Shows nothing: the default when memdiag is called from Python."""

    def say(self, text: str) -> None:
        """Drops the line."""

    def busy(self, text: str) -> AbstractContextManager[None]:  # noqa: ARG002 - required by the protocol
        """Returns a context that shows nothing."""
        return nullcontext()

    def read_trace(self, path: Path) -> Trace:
        """Reads a trace."""
        from memdiag.sources import load

        return load(path)


SILENT: Listener = Silent()
