"""Runs attempts in parallel and stops them; unless time runs out, the result does not depend on the processor count.

Attempts run in waves. The best of a wave is the one with the lowest height; ties go to the first. Attempts after a
perfect one are stopped. Compiled code releases the GIL, so threads suffice.
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
    """Result of an attempt: offsets and height in units (None: none found), and whether it proved that none exists."""

    offsets: Array | None = None
    height: int = 0
    impossible: bool = False


Attempt = Callable[[Array], Outcome]  # its argument is a flag that stops it: any value except 0


class Effort:
    """The time limit and the threads of a search; a context manager.

    Args:
        seconds: Time limit; None: no limit.
        say: Called from time to time with a line about the progress.
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
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def _ring(self) -> None:
        with self._lock:
            self.is_over = True
            for flag in self._flags:
                flag[0] = 1

    def run(self, attempts: Sequence[Attempt], target: int) -> list[Outcome]:
        """Runs attempts and returns their results; attempts after the first that reaches ``target`` may have none."""
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
