"""Holds back what would come between: ctrl-C, where something must not be left half done, and Python's search for garbage."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def held() -> Iterator[None]:
    """A SIGINT that comes meanwhile is the program's at the end of it: KeyboardInterrupt, or whatever its handler does.

    Only the main thread runs handlers; in another one nothing is held, and nothing needs to be.
    """
    theirs = signal.getsignal(signal.SIGINT)
    if not callable(theirs) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []

    def note(number: int, frame: Any) -> None:
        came.append((number, frame))

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, theirs)
        if came:
            theirs(*came[0])


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keeps Python from looking for garbage while the block runs: a snapshot is made of hundreds of thousands of dicts, all of them in use.

    To look through them again and again while there are more of them takes four times as long as to make them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
