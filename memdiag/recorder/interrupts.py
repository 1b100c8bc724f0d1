"""Defers interruptions of critical code: signals, where a half-done operation would do harm, and garbage collection.

It also detects moments at which a signal handler must do nothing.
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
from opcode import opname
from typing import Any

_DEFERRED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGALRM", "SIGCHLD") if hasattr(signal, name))


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Defers signals that the program handles until the end of the block, because its handlers may raise an exception.

    A handler of SIGINT runs at the end of the block. The other signals are sent again, since the recorder contains an
    error that their handlers raise here: that of a DataLoader, for example, when a worker was killed, or of a timeout.
    Only the main thread runs handlers, so the block has no effect in other threads.
    """
    theirs = {}
    if threading.current_thread() is threading.main_thread():
        theirs = {number: handler for number in _DEFERRED if callable(handler := signal.getsignal(number))}
    came: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        came.setdefault(number, frame)

    for number in theirs:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in theirs.items():
            if signal.getsignal(number) is note:
                signal.signal(number, handler)
        for number in came:
            if number != signal.SIGINT:
                again_soon(number)
        if signal.SIGINT in came:
            theirs[signal.SIGINT](signal.SIGINT, came[signal.SIGINT])


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection in the block: a snapshot consists of hundreds of thousands of dicts, all in use.

    Collecting repeatedly while they are created would take four times as long as creating them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_in_profile_function() -> bool:
    """Returns whether this code runs inside a profile function (``sys.setprofile``), as a signal handler may.

    Python traces no calls made by such a function, so a test call that is not traced shows it.
    """
    seen: list[bool] = []
    theirs = sys.gettrace()
    sys.settrace(lambda *_: seen.append(True))
    try:
        _nothing()
    finally:
        sys.settrace(theirs)
    return not seen


def is_at_a_function_start(frame: Any) -> bool:
    """Returns whether a function was interrupted by a signal or a pending call before its first line.

    Python has not told a profile function of its call yet: one that is set now would see the function twice.
    """
    code: bytes = frame.f_code.co_code
    at: int = frame.f_lasti
    return 0 <= at < len(code) and opname[code[at]].startswith("RESUME")


def is_in_a_call(frame: Any) -> bool:
    """Returns whether a signal handler, called in a frame, runs inside a profile function or before that of a call."""
    return is_in_profile_function() or (frame is not None and is_at_a_function_start(frame))


def _nothing() -> None:
    """Does nothing; called to test whether calls are traced."""


def again_soon(number: int) -> None:
    """Sends this process a signal after 10 ms: sending it now would run the handler within itself."""

    def send() -> None:
        time.sleep(0.01)
        os.kill(os.getpid(), number)

    _thread.start_new_thread(send, ())


def end_by(number: int) -> None:
    """Ends this process by a signal, as without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
