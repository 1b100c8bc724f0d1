"""The first run of an installation, while no compiled code is cached.

Compiling takes half a minute, but plain Python reads a small trace in a few seconds. A command therefore runs functions
as plain Python as long as that is faster, and collects them. When it ends, it starts a background process that compiles
these functions for later runs (``warm_up``).

A note file marks each function that a background process is compiling. The process deletes the note when it is done. If
the note still exists after ``TOO_LONG`` seconds, the process was killed, and the next run that needs the function waits
for the compiler.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import pickle
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.trace.temporary import temporary_folder

WHEN = "MEMDIAG_COMPILE"  # environment variable; "now": always compile instead of running plain Python
_PATIENCE = 8.0  # seconds of CPU time in which a process runs functions as plain Python
TOO_LONG = 600.0  # seconds that a background process may take
_LARGEST_JOB = 60_000  # bytes; the buffer of a pipe holds 64 KiB


@dataclass(frozen=True)
class CompileJob:
    """A function to compile in the background.

    Attributes:
        module, name: Module and name of the function (``compiled.Kept``).
        kinds: Kinds of its arguments (``_kind``).
        note: Its note file.
    """

    module: str
    name: str
    kinds: tuple[Any, ...]
    note: Path

    def stand_ins(self) -> tuple[Any, ...]:
        """Returns small arguments of these kinds."""
        return tuple(_stand_in(kind) for kind in self.kinds)


@dataclass
class _State:
    """The state of this process.

    Attributes:
        say: Called when a background process was started; None: functions without compiled code do not run as plain
            Python.
        seconds: CPU time that functions took as plain Python.
        jobs: Functions to compile in the background, by note file.
    """

    say: Callable[[], None] | None = None
    seconds: float = 0.0
    jobs: dict[Path, CompileJob] = field(default_factory=dict)


_state = _State()


def turn_on(say: Callable[[], None]) -> None:
    """Lets functions without compiled code run as plain Python; no effect if the system cannot start processes.

    Args:
        say: Called when a background process was started.
    """
    can_start = hasattr(os, "posix_spawn") and sys.executable and temporary_folder() is not None
    if os.environ.get(WHEN) == "now" or not can_start:
        return
    if _state.say is None:
        atexit.register(start)
    _state.say = say


def is_on() -> bool:
    """Returns whether functions without compiled code may run as plain Python."""
    return _state.say is not None


def is_worth_compiling(arguments: tuple[Any, ...], plain_seconds: float) -> bool:
    """Returns whether compiling is faster than plain Python, which takes ``plain_seconds`` per element."""
    return _state.seconds + plain_seconds * _longest(arguments) > _PATIENCE


def _longest(value: Any) -> int:
    """Returns the length of the longest column in an argument; a record does not count as a column."""
    if isinstance(value, tuple):
        return max((_longest(each) for each in value), default=0)
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.names is None:
        return int(max(value.shape))
    return 0


@contextlib.contextmanager
def as_plain_python() -> Iterator[None]:
    """Counts the time of a call as plain Python."""
    began = time.process_time()
    try:
        yield
    finally:
        _state.seconds += time.process_time() - began


def job_of(module: str, name: str, place: str, arguments: tuple[Any, ...]) -> CompileJob | None:
    """Returns the job of compiling a function for arguments like these; None without a folder for notes.

    Args:
        module, name: Module and name of the function.
        place: Folder and name of its cached code.
    """
    folder = temporary_folder()
    if folder is None:
        return None
    kinds = tuple(_kind(each) for each in arguments)
    note = folder / f"compiling-{zlib.crc32(f'{place} {sys.version} {kinds}'.encode()):08x}"
    return CompileJob(module, name, kinds, note)


def add(job: CompileJob) -> None:
    """Schedules a function for background compilation when the process ends."""
    _state.jobs[job.note] = job


def was_lost(job: CompileJob) -> bool:
    """Returns whether the background process of a job was killed before it finished."""
    age = _age(job.note)
    return age is not None and age > TOO_LONG


def forget(job: CompileJob) -> None:
    """Deletes the note of a job that is done, or that no process will do."""
    with contextlib.suppress(OSError):
        job.note.unlink()


def _age(note: Path) -> float | None:
    try:
        return time.time() - note.stat().st_mtime
    except OSError:
        return None


def _kind(value: Any) -> tuple[Any, ...]:
    """Returns the properties by which numba distinguishes argument types, as a value that can be pickled."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        return (
            "array",
            value.dtype,
            value.ndim,
            "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A",
            flags.writeable,
        )
    if isinstance(value, np.void):
        return "record", value.dtype
    if isinstance(value, tuple):
        return "tuple", type(value), tuple(_kind(each) for each in value)
    return "value", type(value)


def _stand_in(kind: tuple[Any, ...]) -> Any:
    """Returns a small value of a kind."""
    if kind[0] == "array":
        _, dtype, num_dimensions, layout, is_writeable = kind
        shape = (2,) * num_dimensions
        found = np.zeros((*shape, 2), dtype)[..., 0] if layout == "A" else np.zeros(shape, dtype, order=layout)
        found.flags.writeable = is_writeable
        return found
    if kind[0] == "record":
        return np.zeros(1, kind[1])[0]
    if kind[0] == "tuple":
        members = [_stand_in(each) for each in kind[2]]
        return kind[1](*members) if hasattr(kind[1], "_fields") else tuple(members)
    return None if kind[1] is type(None) else kind[1]()


def start() -> None:
    """Starts a background process for the jobs that no other process has taken."""
    jobs = [job for job in _state.jobs.values() if _take(job.note)]
    if not jobs:
        return
    try:
        _spawn(pickle.dumps(jobs))
    except OSError:
        for job in jobs:
            forget(job)
        return
    if _state.say is not None:
        _state.say()


def _spawn(content: bytes) -> None:
    reading, writing = os.pipe()
    try:
        if len(content) > _LARGEST_JOB:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        os.write(writing, content)
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "memdiag.trace.warm_up"],
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
        )
    finally:
        os.close(reading)
        os.close(writing)


def _take(note: Path) -> bool:
    """Creates the note of a job; returns False if another process has already created it."""
    try:
        note.touch(0o600, exist_ok=False)
    except OSError:
        return False
    return True
