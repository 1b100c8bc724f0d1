"""Samples of memory over time: at marks (steps, phases, failures, the end) and on a timer.

A sample is one dict of builtin containers: ``t_us`` (microseconds since 1970), ``when`` (one of ``WHEN``), ``step``
(completed training steps), and one section for each source, under the name of the source. A source has:

* ``name``: the key of its section;
* ``take(when, devices)``: the section, or None for none. ``devices`` are the device indices that the program has used.
  It may be called from the timer's thread, must not initialise a device, and may raise: it is then not called again.
* ``devices()``: device indices that the program has used, as far as the source knows them.

The recorder must not slow down the training. Therefore samples at phases and on the timer are skipped while sampling
has taken more than 1 % of the run, and old samples are thinned: of neighbours, the one with less free memory remains.
The first sample of a phase and of a step is never skipped: NCCL or HCCL has its buffers then, and frees them before the
end of the run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .guard import contained, report

WHEN = ("start", "phase", "step", "mark", "timer", "oom", "end", "save", "saved")
START, PHASE, STEP, MARK, TIMER, OOM, END, SAVE, SAVED = WHEN
_ALWAYS = frozenset({START, MARK, OOM, END, SAVE, SAVED})  # samples that are neither skipped nor thinned
_WITHOUT_DEVICE = _ALWAYS | {STEP, TIMER}  # samples of host memory before the program uses a device
_SEARCHED = frozenset({TIMER, END})  # a program without modules has no marks that name its devices
_FIRST = frozenset({PHASE, STEP})  # samples that are not skipped the first time
_MOST = 2048  # samples in one file
_MOST_COST = 0.01  # fraction of the run
_ALLOWANCE = 0.05  # seconds that sampling may take in addition
_LONGEST_WAIT = 0.1  # seconds that a fork, or a sample that must not be missed, waits for another sample


class Sampler:
    """The samples of one process.

    Args:
        steps: Returns the number of completed training steps.
        interval: Seconds between samples of the timer; 0 for samples at marks only, None for no samples.
    """

    def __init__(self, steps: Callable[[], int], interval: float | None) -> None:
        self.sources: list[Any] = []
        self.devices: set[int] = set()
        self.processor_seconds = 0.0  # that samples took
        self.are_all = False  # whether a recording has nothing but samples: then waiting for a processor skips none
        self._steps = steps
        self._interval = interval
        self._kept: list[dict[str, Any]] = []
        self._group: list[dict[str, Any]] = []  # the newest samples, of which one will be kept
        self._group_size = 1
        self._began = time.perf_counter()
        self._spent = 0.0
        self._taken: set[str] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: Any = None

    def add(self, source: Any) -> None:
        """Adds a source; one with the same name is replaced."""
        self.sources = [other for other in self.sources if other.name != source.name] + [source]

    def start(self) -> None:
        """Starts the timer; later calls have no effect."""
        if self._thread is not None or not self._interval:
            return
        if hasattr(os, "register_at_fork"):  # a child must not inherit a lock in the middle of a sample
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork)
        self._thread = threading.Thread(target=self._run, name="memdiag-samples", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the timer."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    @property
    def is_stopped(self) -> bool:
        """Whether the timer was stopped."""
        return self._stopped.is_set()

    def forget(self) -> None:
        """Stops sampling in a child of fork, which has no timer."""
        self._interval, self._thread, self._lock = None, None, threading.Lock()

    @contained
    def take(self, when: str, **sections: Any) -> None:
        """Takes a sample now.

        Args:
            when: One of ``WHEN``.
            sections: Sections that are known already, by the name of their source, which is then not called.
        """
        if self._interval is None or not (self.devices or sections or when in _WITHOUT_DEVICE):
            return
        # A phase does not wait for the timer; nor does a failure for long, whose allocator may be locked.
        if not self._lock.acquire(timeout=_LONGEST_WAIT if when in _ALWAYS else 0):
            return
        # The timer's thread delays the program by its processor time only, not while it waits for a busy processor.
        clock = time.thread_time if when == TIMER or self.are_all else time.perf_counter
        try:
            began, cpu = clock(), time.thread_time()
            is_needed = when in _ALWAYS or (when in _FIRST and when not in self._taken)
            if not is_needed and self._spent > _ALLOWANCE + _MOST_COST * (time.perf_counter() - self._began):
                return
            self._taken.add(when)
            if when in _SEARCHED:
                for source in self.sources:
                    self.devices.update(self._answer(source, source.devices) or ())
            sample: dict[str, Any] = {"t_us": time.time_ns() // 1000, "when": when, "step": self._steps()}
            devices = tuple(sorted(self.devices))
            for source in self.sources:
                section = sections.get(source.name)
                if section is None:
                    section = self._answer(source, partial(source.take, when, devices))
                if section:
                    sample[source.name] = section
            if any(source.name in sample for source in self.sources):
                self._keep(sample)
            self._spent += clock() - began
            self.processor_seconds += time.thread_time() - cpu
        finally:
            self._lock.release()

    def content(self) -> list[dict[str, Any]]:
        """Returns the samples in order of time."""
        return [*self._kept, *([_fullest(self._group)] if self._group else [])]

    def _answer(self, source: Any, ask: Callable[[], Any]) -> Any:
        """Returns the answer of a source; one that fails is dropped."""
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - a library of a driver may raise anything
            self.sources = [other for other in self.sources if other is not source]
            report(f"samples of {source.name}", error)
            return None

    def _keep(self, sample: dict[str, Any]) -> None:
        if sample["when"] in _ALWAYS:
            self._kept += [*([_fullest(self._group)] if self._group else []), sample]
            self._group = []
        else:
            self._group.append(sample)
            if len(self._group) >= self._group_size:
                self._kept.append(_fullest(self._group))
                self._group = []
        if len(self._kept) > _MOST:
            self._kept = _thinned(self._kept)
            self._group_size *= 2

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self.take(TIMER)

    def _before_fork(self) -> None:
        self._is_held = self._lock.acquire(timeout=_LONGEST_WAIT)

    def _after_fork(self) -> None:
        if self._is_held:
            self._lock.release()


def _fullest(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the sample with the least free memory."""
    return min(samples, key=_free)


def _free(sample: dict[str, Any]) -> int:
    return sum(row["free_bytes"] for row in sample.get("card", ()))


def _thinned(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns about half of the samples: of each two in a row that may be thinned, the fuller one.

    Of samples that are always taken, the oldest are dropped if they alone are too many.
    """
    kept: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for sample in samples:
        if sample["when"] in _ALWAYS:
            kept += [*waiting, sample]
            waiting = []
        elif waiting:
            kept.append(_fullest((*waiting, sample)))
            waiting = []
        else:
            waiting = [sample]
    return (kept + waiting)[-_MOST * 3 // 4 :]
