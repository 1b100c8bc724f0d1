"""Runs functions on the main thread of the program, between two of its bytecodes, as a signal handler would.

Hooks must not be installed from another thread: PyTorch iterates over the hooks of optimizers while it calls them, and
a dict that changes meanwhile raises in the training.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_PAUSE = 0.002  # seconds between two attempts
# Files that iterate over hooks or collect events, and those that enclose a forward or backward pass. While events are
# collected, the history lacks them.
_BUSY = ("torch/optim/optimizer.py", "recorder/backends/cpu.py")
_WITHIN_A_PASS = ("torch/nn/modules/module.py", "torch/autograd/__init__.py", "torch/autograd/function.py")
_waiting: dict[int, Any] = {}
_texts: dict[int, Any] = {}  # what the main thread will read; Python does not copy it
_numbers = iter(range(1 << 62))


class NotReached(Exception):
    """The main thread did not run Python code in time: it waits in a call of a library."""


class MainThreadJob:
    """A function that the main thread will run."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self.was_declined = False
        self.avoided: tuple[str, ...] = ()

    def run(self) -> None:
        """Runs the function, unless the main thread is inside a file to avoid."""
        self.was_declined = _is_within(self.avoided)
        if not self.was_declined:
            try:
                self._result = self._function()
            except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
                self._error = error
        self._done.set()

    def schedule(self, avoided: tuple[str, ...]) -> None:
        """Lets the main thread run the function as soon as it runs Python code."""
        self._done.clear()
        self.avoided = avoided
        number = next(_numbers)
        _waiting[number] = self
        # Python's own function runs the text, because a callback of ctypes must not be freed while it returns.
        # It must never fail: a pending call that fails without an exception ends the program.
        text = f"try:\n __import__('sys').modules[{__name__!r}].take({number})\nexcept BaseException: pass\n"
        _texts[number] = ctypes.create_string_buffer(text.encode())
        api = ctypes.pythonapi
        while api.Py_AddPendingCall(api.PyRun_SimpleString, _texts[number]) != 0:  # its queue is full
            time.sleep(_PAUSE)

    def wait(self, seconds: float | None) -> bool:
        """Waits until the main thread was here; returns whether it was."""
        return self._done.wait(seconds)

    def result(self) -> Any:
        """Returns the function's result, or raises its error."""
        if self._error is not None:
            raise self._error
        return self._result


def take(number: int) -> None:
    """Runs a scheduled function; called on the main thread."""
    job = _waiting.pop(number, None)
    _texts.pop(number, None)
    if job is not None:
        job.run()


def interrupted() -> Any:
    """Returns the frame of the program that the calling, scheduled function interrupts, or None."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code is not take.__code__:
        frame = frame.f_back
    text = None if frame is None else frame.f_back  # the module of PyRun_SimpleString
    return None if text is None else text.f_back


def on_main(function: Callable[[], Any], seconds: float | None = 5.0, *, between_passes: float = 0.0) -> Any:
    """Runs a function on the main thread and returns its result.

    Args:
        function: What to run.
        seconds: Longest wait for the main thread; None waits until it comes.
        between_passes: Seconds to wait for a moment outside of a forward or backward pass. Afterwards, any moment will
            do at which PyTorch does not iterate over hooks, and no events are collected.

    Raises:
        NotReached: The main thread did not run Python code in time. The function will not run any more.
    """
    if threading.current_thread() is threading.main_thread():
        return function()
    job = MainThreadJob(function)
    began = time.monotonic()
    while True:
        elapsed = time.monotonic() - began
        job.schedule(_BUSY + (_WITHIN_A_PASS if elapsed < between_passes else ()))
        if not job.wait(None if seconds is None else max(seconds - elapsed, 0.01)):
            for number in [number for number, other in list(_waiting.items()) if other is job]:
                _waiting.pop(number, None)
            raise NotReached
        if not job.was_declined:
            return job.result()
        time.sleep(_PAUSE)


def _is_within(files: tuple[str, ...]) -> bool:
    frame = sys._getframe()
    while frame is not None:
        if files and frame.f_code.co_filename.replace("\\", "/").endswith(files):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
