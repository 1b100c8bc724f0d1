"""Compiles functions for later runs, in a background process that ``first_run`` starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import sys
from importlib import import_module
from typing import IO

from memdiag.trace.first_run import TOO_LONG, CompileJob, forget
from memdiag.trace.temporary import temporary_folder

_MOST_FILES = 1024  # upper bound of the file descriptors inherited from the parent process


def main() -> None:
    """Does the jobs read from stdin: one process at a time, at the lowest priority, for a limited time."""
    jobs: list[CompileJob] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    os.setsid()
    os.closerange(3, _MOST_FILES)  # other processes may wait until they are closed, or for a lock on one of them
    os.nice(19)
    signal.alarm(int(TOO_LONG))
    lock = wait_for_others()
    for job in jobs:
        with contextlib.suppress(Exception):
            compile_for(job)
    lock.close()


def wait_for_others() -> IO[bytes]:
    """Returns a lock that only one of these processes can hold at a time."""
    folder = temporary_folder()
    if folder is None:
        raise SystemExit
    lock = (folder / "compiling.lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def compile_for(job: CompileJob) -> None:
    """Compiles a function, and deletes its note."""
    from memdiag.trace.compiled import Kept

    kept = [each for each in vars(import_module(job.module)).values() if isinstance(each, Kept)]
    next(each for each in kept if each.__qualname__ == job.name).compile_for(job.stand_ins())
    forget(job)


if __name__ == "__main__":
    main()
