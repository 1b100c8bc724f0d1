"""Holds back what would come between: ctrl-C, where something must not be left half done, and Python's search for garbage.

And tells moments at which a signal's handler must do nothing.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import sys
import threading
import time
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


def is_in_profile_function() -> bool:
    """Whether this code runs from within a function that looks at calls (``sys.setprofile``), as a signal's handler may.

    Python looks at no call that such a function makes: whether it looks at one of ours tells.
    """
    seen: list[bool] = []
    theirs = sys.gettrace()
    sys.settrace(lambda *_: seen.append(True))
    try:
        _nothing()
    finally:
        sys.settrace(theirs)
    return not seen


def _nothing() -> None:
    """Is called, to see whether calls are looked at."""


def again_soon(number: int) -> None:
    """Sends this process a signal in a hundredth of a second: not now, or its handler would be run within itself."""

    def send() -> None:
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())
