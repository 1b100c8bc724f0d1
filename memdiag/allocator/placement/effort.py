"""Runs attempts in parallel and stops them; unless time runs out, the result does not depend on the processor count.

Attempts run in waves. The best of a wave is the one with the lowest height; ties go to the first. Attempts behind a
perfect one are stopped. Compiled code releases the GIL, so threads are enough.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from memdiag.trace.table import Array

WAVE = 4


@dataclass(frozen=True)
class Outcome:
    """What an attempt gave: offsets and height in units (None: nothing), and whether it showed that there is nothing to find."""

    offsets: Array | None = None
    height: int = 0
    impossible: bool = False


Attempt = Callable[[Array], Outcome]  # is given one value to look at: other than 0, it is to stop


class Effort:
    """Time and threads. Use as a context manager.

    Args:
        seconds: At most; None: without end.
        say: Called with a line about how far it is, now and then.
    """

    def __init__(self, seconds: float | None, say: Callable[[str], None]) -> None:
        self._begun = time.monotonic()
        self._end = None if seconds is None else self._begun + seconds
        self._pool = ThreadPoolExecutor(min(WAVE, os.cpu_count() or 1))
        self._flags: list[Array] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.is_over = False
        self.say = say

    def __enter__(self) -> Self:
        if self._end is not None:
            self._timer = threading.Timer(max(self._end - self._begun, 0.0), self._ring)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ring()
        if self._timer:
            self._timer.cancel()
        self._pool.shutdown(wait=True)

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return time.monotonic() - self._begun

    def _ring(self) -> None:
        with self._lock:
            self.is_over = True
            for flag in self._flags:
                flag[0] = 1

    def run(self, attempts: Sequence[Attempt], target: int) -> list[Outcome]:
        """Runs attempts and returns their results; those behind the first to reach ``target`` may have none."""
        flags = [np.zeros(1, np.int64) for _ in attempts]
        with self._lock:
            self._flags = flags
            if self.is_over:
                return [Outcome() for _ in attempts]

        def attempt(number: int) -> Outcome:
            if flags[number][0] != 0:
                return Outcome()
            outcome = attempts[number](flags[number])
            if outcome.offsets is not None and outcome.height <= target:
                for flag in flags[number + 1 :]:
                    flag[0] = 1
            return outcome

        outcomes = list(self._pool.map(attempt, range(len(attempts))))
        reached = next(
            (
                number
                for number, outcome in enumerate(outcomes)
                if outcome.offsets is not None and outcome.height <= target
            ),
            len(outcomes),
        )
        return [outcome if number <= reached else Outcome() for number, outcome in enumerate(outcomes)]
