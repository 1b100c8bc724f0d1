"""Waits after a backward pass until autograd's threads have dropped their last references.

A device thread of autograd wakes the thread that waits for the result, and frees what it holds afterwards. Which of the
two frees a tensor first depends on the scheduler, so the order of frees could differ from run to run: for
``create_graph=True`` in particular, where the program drops gradients of gradients at once. On a real device, the
kernels of the next operators hide most of this race.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

_NAME = "pt_autograd_"  # of autograd's threads, since torch 2.4; one for each device
_MOST_SECONDS = 0.05
_ROUNDS = 2  # consecutive looks at which all threads sleep


def begin(graph: Any) -> None:
    """Wraps the function that starts the engine.

    Args:
        graph: The module ``torch.autograd.graph``.
    """
    original = getattr(graph, "_engine_run_backward", None)
    if original is None:  # before torch 2.2
        return
    threads = AutogradThreads()

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            threads.settle()

    graph._engine_run_backward = run


class AutogradThreads:
    """The autograd threads of this process."""

    def __init__(self) -> None:
        self._process = 0
        self._files: list[str] = []

    def settle(self) -> None:
        """Waits until all threads sleep, at most for a moment; does nothing in an autograd thread itself."""
        if self._process != os.getpid() or not self._files:
            self._process, self._files = os.getpid(), _stat_files()
        if _is_autograd("/proc/thread-self/comm"):
            return
        rounds, until = 0, time.monotonic() + _MOST_SECONDS
        while rounds < _ROUNDS and time.monotonic() < until:
            rounds = rounds + 1 if all(map(_sleeps, self._files)) else 0


def _stat_files() -> list[str]:
    try:
        tasks = [f"/proc/self/task/{task}" for task in os.listdir("/proc/self/task")]
    except OSError:
        return []
    return [f"{task}/stat" for task in tasks if _is_autograd(f"{task}/comm")]


def _is_autograd(file: str) -> bool:
    return _text(file).startswith(_NAME)


def _sleeps(file: str) -> bool:
    """Returns whether a thread waits or has ended; the look releases the interpreter's lock, which it may wait for."""
    return _text(file).rpartition(")")[2][:2].strip() in {"S", ""}


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except OSError:
        return ""
