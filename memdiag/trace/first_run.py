"""The first run of an installation, while no compiled code is cached.

Compiling takes half a minute, but a small trace takes plain Python only a few seconds. So a command runs functions as
plain Python as long as that is quicker, and notes them. When it ends, it starts a process in the background that
compiles them for later runs (``warm_up``).

While a background process compiles a function, a file says so. The process deletes it when it is done. If the file is
still there after ``TOO_LONG``, the process was killed, and the next run that needs the function waits for the compiler.
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

WHEN = "MEMDIAG_COMPILE"  # environment variable; "now": never run as plain Python what can be compiled
_PATIENCE = 8.0  # seconds of CPU time in which a process runs functions as plain Python
TOO_LONG = 600.0  # seconds that a background process may take
_LARGEST_JOB = 60_000  # bytes: a pipe holds 64 KiB that nobody has read yet


@dataclass(frozen=True)
class Job:
    """A function to compile in the background.

    Attributes:
        module, name: Of the function (``compiled.Kept``).
        kinds: Of its arguments (``_kind``).
        note: The file that says so.
    """

    module: str
    name: str
    kinds: tuple[Any, ...]
    note: Path

    def stand_ins(self) -> tuple[Any, ...]:
        """Returns arguments of these kinds."""
        return tuple(_stand_in(kind) for kind in self.kinds)


@dataclass
class _State:
    """The state of this process.

    Attributes:
        say: Called when a background process was started; None: functions without compiled code do not run as plain
            Python.
        seconds: CPU time that functions took as plain Python.
        jobs: Functions to compile in the background, by note.
    """

    say: Callable[[], None] | None = None
    seconds: float = 0.0
    jobs: dict[Path, Job] = field(default_factory=dict)


_state = _State()


def turn_on(say: Callable[[], None]) -> None:
    """Lets functions run as plain Python while they have no compiled code.

    Without effect where processes cannot be started.

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
    """Returns whether compiling takes less time than a call as plain Python, which takes ``plain_seconds`` for each element."""
    return _state.seconds + plain_seconds * _longest(arguments) > _PATIENCE


def _longest(value: Any) -> int:
    """Returns the elements of the longest column in an argument; records are no columns."""
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


def job_of(module: str, name: str, place: str, arguments: tuple[Any, ...]) -> Job | None:
    """Returns the job of compiling a function for arguments like these; None: there is no folder for notes.

    Args:
        module, name: Of the function.
        place: Where its code is kept, and under which name.
    """
    folder = temporary_folder()
    if folder is None:
        return None
    kinds = tuple(_kind(each) for each in arguments)
    note = folder / f"compiling-{zlib.crc32(f'{place} {sys.version} {kinds}'.encode()):08x}"
    return Job(module, name, kinds, note)


def add(job: Job) -> None:
    """Has a function compiled in the background when the process ends."""
    _state.jobs[job.note] = job


def was_lost(job: Job) -> bool:
    """Returns whether a background process that was started for a job has not done it."""
    age = _age(job.note)
    return age is not None and age > TOO_LONG


def forget(job: Job) -> None:
    """Deletes the note of a job: it is done, or nobody does it."""
    with contextlib.suppress(OSError):
        job.note.unlink()


def _age(note: Path) -> float | None:
    try:
        return time.time() - note.stat().st_mtime
    except OSError:
        return None


def _kind(value: Any) -> tuple[Any, ...]:
    """Returns what numba tells types of arguments by, in a form that can be pickled."""
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
    """Starts a process that does the jobs which no other one does, and does not wait for it."""
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
    """Makes the note of a job; returns whether it was not there."""
    try:
        note.touch(0o600, exist_ok=False)
    except OSError:
        return False
    return True
