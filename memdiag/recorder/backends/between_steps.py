"""Collects the events of PyTorch's profiler while a program runs long without a step, for example while it reads data.

PyTorch's profiler stores every Python call: 12 bytes while it runs, and 800 bytes more when it stops. A program that
makes ten million calls before its first step would need 8 GB at its first step. A thread therefore asks the main thread
to collect the events whenever there may be 200,000 calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..watching.on_main import MainThreadJob

_CALLS = 200_000  # aimed at in one collection
_LEAST_SECONDS, _MOST_SECONDS = 0.2, 2.0  # between two collections


class BetweenSteps:
    """A thread that calls ``collect`` on the main thread, between two bytecodes, when it is due.

    Args:
        seconds: Returns the seconds since the last collection.
        collect: Collects the events.

    Attributes:
        wait: Seconds after a collection until the next one is due.
    """

    def __init__(self, seconds: Callable[[], float], collect: Callable[[], Any]) -> None:
        self.wait = _LEAST_SECONDS
        self._seconds, self._collect = seconds, collect
        self._ended = threading.Event()

    def start(self) -> None:
        """Starts the thread, if this is the main thread: another thread would stop its own profiler."""
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._run, name="memdiag-events", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def collected(self, num_calls: int, seconds: float) -> None:
        """Adapts the wait to the calls in the last collection, and the seconds in which they were made."""
        self.wait = min(max(seconds * _CALLS / max(num_calls, 1), _LEAST_SECONDS), _MOST_SECONDS)

    def _run(self) -> None:
        job = MainThreadJob(self._collect)
        left = self.wait
        while not self._ended.wait(max(left, _LEAST_SECONDS / 4)):
            left = self.wait - self._seconds()
            if left <= 0:
                job.schedule(())
                job.wait(None)
                left = self.wait
