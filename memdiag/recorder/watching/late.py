"""A recording that starts while the program runs, writes files on request, and leaves nothing behind.

Blocks that were allocated before it have no call stack, and the events before it are not recorded. On the CPU, blocks
allocated before it are unknown altogether: PyTorch's profiler reports only what happens while it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from typing import Any

from .. import session as sessions
from ..backends.cpu import Cpu
from ..config import Config
from ..marks import OUTSIDE, PHASE
from ..placing import Placing
from ..session import Session

_ERRORS = 2  # c10's log level above warnings


class Late(Session):
    """One such recording. All methods must be called on the main thread.

    Args:
        torch: The program's torch.
        backends: The accelerators that the program uses; none: its CPU memory is recorded.
        max_events: Number of most recent entries to retain per device.
    """

    def __init__(self, torch: Any, backends: Iterable[Any], max_events: int) -> None:
        super().__init__(Config("", max_events=max_events, sample_interval=0), torch)
        self._joined = list(backends)
        self._quiet = _Quiet(torch)

    def begin(self) -> None:
        """Starts the history of all devices and installs the hooks of steps, phases and names."""
        if not self._joined:
            self._quiet.begin()
        for backend in self._joined or [_cpu(self.torch)]:
            if backend in self._joined and backend.has_history():
                backend.taken_over = "changed"  # by the program, which keeps its settings
            else:
                backend.start(self.config.max_events)
            if backend.is_active:
                self.backends.append(backend)
                self._main = self._main or backend
        if self._main is not None and not self._main.has_times:
            is_quick = getattr(self._main, "is_quick", False)
            ask = self._main.quick_position if is_quick else self._main.position
            self.training.placing = Placing(ask, is_quick=is_quick)
        self._on = bool(self.backends)
        self.naming.devices = tuple({backend.name for backend in self.backends})
        self.training.install()
        self.naming.begin(self.marks.add(PHASE, OUTSIDE))

    def write_to(self, path: str) -> bool:
        """Writes the recording so far; returns whether it succeeded."""
        self._place._path = path
        self._written = {}
        self.config = Config(os.path.dirname(path), file=path, max_events=self.config.max_events, sample_interval=0)
        self.write("demand")
        return any(file["path"] == path for file in self._written.values())

    def leave(self) -> None:
        """Stops the history, and removes the hooks."""
        self._on = False
        self.training.remove()
        for backend in self.backends:
            backend.stop()
            if backend in self._joined:
                backend.taken_over = ""
                backend.join(self.torch)
        self.backends = []
        if not self._joined:
            self._quiet.end()


class _Quiet:
    """Keeps PyTorch from printing a line for each thousandth free of a block that is older than the CPU history.

    The number is c10's log level, which also hides its other warnings meanwhile; Python's warnings do not use it.
    """

    def __init__(self, torch: Any) -> None:
        self._level: Any = None
        self._before = 0
        with contextlib.suppress(OSError, ValueError, AttributeError):
            library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
            self._level = ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")

    def begin(self) -> None:
        if self._level is not None:
            self._before = self._level.value
            self._level.value = max(self._before, _ERRORS)

    def end(self) -> None:
        if self._level is not None and self._level.value == max(self._before, _ERRORS):
            self._level.value = self._before


def _cpu(torch: Any) -> Cpu:
    cpu = Cpu()
    cpu._torch = torch
    return cpu


def other_recording() -> Any:
    """Returns the recording that ``memdiag record`` or ``memdiag.recording`` runs in this process, or None."""
    names = ("memdiag_recorder.session", "memdiag.recorder.session")
    for name in names:
        module = sys.modules.get(name)
        current = module.current() if module is not None and hasattr(module, "current") else None
        if current is not None:
            return current
    return sessions.current()
