"""Watches numba compile this package's functions, and estimates how long that will take.

The first run of an installation compiles for half a minute or more. numba reports the start and end of each function,
including callees. Compilation time is proportional to bytecode length, so the completed share and the speed so far
predict the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from memdiag.trace import compiled, linking

SECONDS_PER_INSTRUCTION = 1.4e-3  # on a processor of 2023; used until the speed of this one has been measured
_KIND = "numba:compile"
_ENOUGH = 300  # instructions after which the measured speed is reliable
_PATIENCE = 2.0  # seconds after which the first estimate is made even without a measured speed


@dataclass(frozen=True)
class Compilation:
    """Progress of compilation.

    Attributes:
        share: Completed fraction, from 0 to 1.
        seconds_left: Estimated remaining seconds.
        has_grown: Whether the amount of code to compile is larger than previously known.
        purpose: Purpose of the functions, in words.
    """

    share: float
    seconds_left: float
    has_grown: bool
    purpose: str


def watch(tell: Callable[[Compilation], None]) -> Callable[[], None]:
    """Calls ``tell`` whenever compilation of a function begins or ends; returns a function that stops this."""
    if compiled.numba is None:
        return lambda: None
    event, seen = compiled.numba.core.event, _CompilationWatch(tell)
    listener = type("Listener", (event.Listener,), {"on_start": seen.on_start, "on_end": seen.on_end})()
    event.register(_KIND, listener)
    return lambda: event.unregister(_KIND, listener)


class _CompilationWatch:
    def __init__(self, tell: Callable[[Compilation], None]) -> None:
        self._tell = tell
        self._waiting: dict[CodeType, int] = {}  # instructions of the functions that have to be compiled
        self._total = self._done = self._depth = 0
        self._seconds = 0.0  # duration of the completed compilations
        self._began = 0.0
        self._purpose = ""
        self._has_grown = False

    def on_start(self, event: Any) -> None:
        """Handles the start of the compilation of a function, perhaps a callee."""
        self._depth += 1
        if self._depth > 1:
            self._report()
            return
        self._began = time.monotonic()
        function = event.data["dispatcher"].py_func
        if function.__code__ not in self._waiting:
            self._purpose = _purpose(function)
            self._add(function)
            for kept in compiled.KEPT:
                if _purpose(kept.py_func) == self._purpose and compiled.is_cold(kept):
                    self._add(kept)
        self._report()

    def on_end(self, event: Any) -> None:
        """Handles the end of the compilation of a function."""
        self._depth -= 1
        self._done += self._waiting.pop(event.data["dispatcher"].py_func.__code__, 0)
        if not self._depth:
            self._seconds += time.monotonic() - self._began
        self._report()

    def _add(self, function: Any) -> None:
        for each in linking.called_by(function):
            if each.__code__ not in self._waiting:
                self._waiting[each.__code__] = linking.num_instructions(each)
                self._total += self._waiting[each.__code__]
                self._has_grown = True

    def _report(self) -> None:
        seconds = self._seconds + (time.monotonic() - self._began if self._depth else 0.0)
        is_known = self._done >= _ENOUGH
        pace = seconds / self._done if is_known else SECONDS_PER_INSTRUCTION
        has_grown = self._has_grown and (is_known or seconds >= _PATIENCE)
        self._has_grown = self._has_grown and not has_grown
        share = self._done / self._total if self._total else 1.0
        self._tell(Compilation(share, pace * (self._total - self._done), has_grown, self._purpose))


def _purpose(function: Any) -> str:
    return "replay traces" if function.__module__.startswith("memdiag.allocator.") else "read traces"
