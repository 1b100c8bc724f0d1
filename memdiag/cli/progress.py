"""How far a long reading has come, on a terminal: a line on stderr that goes away again. Anywhere else nothing is shown."""

from __future__ import annotations

import os
import sys
import time
from typing import Self

_WAIT = 0.5  # seconds before anything is shown: what is quicker needs no bar
_PAUSE = 0.1  # seconds between two looks
_BAR = 20


class Progress:
    """Call it with a name, the bytes read, and the size; as a context manager it wipes its line at the end."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + _WAIT
        self._shown = False

    def __enter__(self) -> Self:
        """Begins."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wipes the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Shows that ``done`` bytes of ``name`` were read, of ``total`` if that is known."""
        now = time.monotonic()
        if not self._on or now < self._next:
            return
        import shutil

        from memdiag.render.text import in_ascii, plain
        from memdiag.units import format_bytes

        self._next, self._shown = now + _PAUSE, True
        parts = [format_bytes(done)]
        if total:
            share = min(done / total, 1.0)
            parts = [f"[{('#' * round(share * _BAR)).ljust(_BAR, '.')}] {share:4.0%} of {format_bytes(total)}"]
        width = max(shutil.get_terminal_size().columns - 2, 20)
        line = plain(" ".join([*parts, "standard input" if name == "-" else name]), width)
        sys.stderr.write("\r\x1b[K" + in_ascii(line))
        sys.stderr.flush()
