"""Long stretches of a program without a mark of the recorder, for example while it reads data.

PyTorch's profiler stores every Python call: about 20 bytes while it runs, and 800 bytes more when it stops. A program
that makes ten million calls before its first step would need 8 GB at that step, and a minute or more. A thread
therefore asks the main thread to collect the events from time to time. If there were many calls and nearly no
allocations, the profiler reports no calls for the next stretch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..interrupts import is_at_a_function_start
from ..watching.on_main import MainThreadJob, interrupted

FIRST_SECONDS, SECONDS = 0.05, 0.2  # before the first forward, and later
_FIRST_ATTEMPT_SECONDS, _ATTEMPT_SECONDS = 0.005, 0.05
_ENDS_WITHIN = 1.0  # seconds


class Stretches:
    """A thread that lets the main thread call ``collect`` between two of its bytecodes, when it is due.

    It counts the processor time of the main thread, which makes no calls while it waits.

    Args:
        collect: Collects the events, if this is a moment at which it can.

    Attributes:
        seconds: Of a processor, that the main thread uses between two collections: ``FIRST_SECONDS``. A program that
            prepares its data makes three million calls per second. Later, ``SECONDS`` divide fewer passes.
    """

    def __init__(self, collect: Callable[[], Any]) -> None:
        self._collect = collect
        self.seconds = FIRST_SECONDS
        self._ended = threading.Event()
        self._clock: Callable[[], float] = time.monotonic
        self._last = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, if this is the main thread: another thread would stop its own profiler."""
        main = threading.main_thread()
        if threading.current_thread() is not main or self._thread is not None:
            return
        if hasattr(time, "pthread_getcpuclockid"):
            number = time.pthread_getcpuclockid(main.ident or 0)
            self._clock = lambda: time.clock_gettime(number)
        self.collected()
        self._thread = threading.Thread(target=self._run, name="memdiag-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN)

    def collected(self) -> None:
        """Begins a new stretch: the events have been collected."""
        self._last = self._clock()

    def _run(self) -> None:
        job = MainThreadJob(self._interrupt)
        attempt = _FIRST_ATTEMPT_SECONDS
        while not self._ended.wait(max(self._last + self.seconds - self._clock(), attempt)):
            if self._clock() - self._last < self.seconds:
                attempt = _FIRST_ATTEMPT_SECONDS
            else:
                attempt = min(2 * attempt, _ATTEMPT_SECONDS)
                job.schedule(())
                while not (job.wait(_ATTEMPT_SECONDS) or self._ended.is_set()):
                    pass

    def _interrupt(self) -> None:
        """Collects the events on the main thread, unless it is at the start of a function."""
        frame = interrupted()
        if frame is not None and not is_at_a_function_start(frame):
            self._collect()
