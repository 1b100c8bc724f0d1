"""Keeps memdiag's profiler from printing a line on stderr at each start and stop.

The program's own profilers print as usual. The log level is one number in Kineto, read from the environment
(KINETO_LOG_LEVEL) when the first profiler of the process is prepared. If the number is not accessible, the environment
variable is set, and the program's own profilers print less.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

_VARIABLE = "KINETO_LOG_LEVEL"
_NOTHING = 99
_SYMBOL = "_ZN9libkineto6Logger14severityLevel_E"  # int libkineto::Logger::severityLevel_


class Silence:
    """Suppresses log output while ``kept()`` is active.

    Args:
        torch: The module torch.
    """

    def __init__(self, torch: Any) -> None:
        self._level: Any = None
        for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", name))
                self._level = ctypes.c_int.in_dll(library, _SYMBOL)
        self._is_new = True  # Kineto may not have read it yet

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Suppresses log output within the block.

        The first use must surround the preparation of a profiler, and nothing else.
        """
        is_new, self._is_new = self._is_new, False
        given = os.environ.get(_VARIABLE)
        level = self._level
        before = level.value if level is not None else None
        if level is not None:
            level.value = _NOTHING
        through_environment = is_new and (level is None or given is not None)
        if through_environment:
            os.environ[_VARIABLE] = str(_NOTHING)
        try:
            yield
        finally:
            if through_environment and given is None:
                del os.environ[_VARIABLE]
            elif through_environment:
                os.environ[_VARIABLE] = given or ""
                with contextlib.suppress(ValueError):
                    before = int(given or "")  # the value that Kineto would have derived from it
            if level is not None and not (is_new and level.value != _NOTHING):  # or Kineto has just set it
                level.value = before
