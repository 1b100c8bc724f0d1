"""Progress of long work: a temporary line on stderr, shown on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import Self

from memdiag.cli.talk import is_terminal, wipe_line
from memdiag.text import phrase

_WAIT = 0.5  # seconds before the first line, so that short work shows none
_PAUSE = 0.1  # seconds between two lines
_BAR = 20


class ProgressLine:
    """A progress line: call it with a text; as a context manager, it clears the line at the end."""

    def __init__(self) -> None:
        self._on = is_terminal()
        self._next = time.monotonic() + _WAIT
        self._shown = False

    def __enter__(self) -> Self:
        """Begins."""
        return self

    def __exit__(self, *_: object) -> None:
        """Clears the line."""
        if self._shown:
            wipe_line()

    @property
    def is_due(self) -> bool:
        """True if a call would show its text now."""
        return self._on and time.monotonic() >= self._next

    def __call__(self, text: str) -> None:
        """Replaces the shown text, if it has been shown long enough."""
        if not self.is_due:
            return
        import shutil

        from memdiag.text import in_ascii, plain

        self._next, self._shown = time.monotonic() + _PAUSE, True
        width = max(shutil.get_terminal_size().columns - 2, 20)
        sys.stderr.write("\r\x1b[K" + in_ascii(plain(text, width)))
        sys.stderr.flush()


class Progress:
    """Progress of reading a large file: call it with name, bytes read and size.

    As a context manager, it clears its line at the end.
    """

    def __init__(self) -> None:
        self._line = ProgressLine()

    def __enter__(self) -> Self:
        """Begins."""
        return self

    def __exit__(self, *error: object) -> None:
        """Clears the line."""
        self._line.__exit__(*error)

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Shows that ``done`` of ``total`` bytes of ``name`` have been read; ``total`` is None if unknown."""
        if not self._line.is_due:
            return
        from memdiag.units import format_bytes

        read = (
            f"{bar(done / total)} {min(done / total, 1.0):4.0%} of {format_bytes(total)}"
            if total
            else format_bytes(done)
        )
        self._line(phrase("progress.bytes", read=read, name=phrase("progress.stdin") if name == "-" else name))


def bar(share: float) -> str:
    """Returns a bar that shows a fraction of 1."""
    return f"[{('#' * round(min(share, 1.0) * _BAR)).ljust(_BAR, '.')}]"
