"""The engine on this machine: a few processes, each with one file at a time.

It does not use a pool of ``concurrent.futures``: when one of its processes is killed, the whole pool is broken, and the
file that caused it is unknown. Here each process has a thread that sends it files. A file whose process dies is tried
once more, last of all, in a fresh process, and the other processes are not affected. A process is replaced after some
files, so that memory stays at one file's need per process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from memdiag.errors import MemdiagError
from memdiag.fleet.work import KILLED, Result, Task
from memdiag.fleet.worker import READY
from memdiag.text import phrase

FILES_A_PROCESS = 512
_ATTEMPTS = 3  # to start a process
_PAUSE = 0.2  # seconds between checks for Ctrl-C
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from memdiag.fleet.worker import main; main()"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FOLDERS = ("TMPDIR", "TEMP", "TMP")


class Local:
    """Local processes.

    Args:
        workers: Number of processes, or None for one for each processor that this process may use.
        address: Not used: this engine is local.
    """

    # All engines have the same signature.
    def __init__(self, workers: int | None = None, address: str | None = None) -> None:  # noqa: ARG002
        self.workers = workers or processors()
        self._running: set[_Process] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._scratch = ""

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it completes.

        Raises:
            MemdiagError: Processes cannot be started.
        """
        self._ended = False
        todo: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Result] | MemdiagError] = queue.SimpleQueue()
        for number in range(len(tasks)):
            todo.put((number, 0))
        threads = [
            threading.Thread(target=self._serve, args=(tasks, todo, done), daemon=True)
            for _ in range(min(self.workers, len(tasks)))
        ]
        self._scratch = tempfile.mkdtemp(prefix="memdiag-fleet-")
        try:
            for thread in threads:
                thread.start()
            for _ in tasks:
                result = _get(done)
                if isinstance(result, MemdiagError):
                    raise result
                yield result
        finally:
            self._end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _serve(self, tasks: Sequence[Task], todo: Any, done: Any) -> None:
        """Sends files to one process after another until there are none left."""
        process: _Process | None = None
        try:
            while not self._ended:
                try:
                    number, attempts = todo.get(timeout=_PAUSE)
                except queue.Empty:  # a file whose process died may come back
                    continue
                if process is None or process.num_files >= FILES_A_PROCESS:
                    self._stop(process)
                    process = self._start()
                answer = process.ask(tasks[number])
                if answer is not None:
                    done.put((number, answer))
                    continue
                self._stop(process)
                process = None
                if self._ended:
                    return
                if attempts:
                    done.put((number, {"error": KILLED}))
                else:
                    todo.put((number, attempts + 1))
        except MemdiagError as error:
            done.put(error)
        except OSError as error:
            done.put(
                MemdiagError(
                    phrase("errors.no-process.error", value=str(error.strerror or error)),
                    phrase("errors.no-process.workers"),
                )
            )
        except Exception as error:  # noqa: BLE001 - otherwise the consumer of the results would wait forever
            done.put(MemdiagError(f"{type(error).__name__}: {error}", phrase("errors.bug")))
        finally:
            self._stop(process)

    def _start(self) -> _Process:
        """Returns a process that is ready for files.

        Raises:
            MemdiagError: No process becomes ready after several attempts; one may have been killed.
        """
        for _ in range(_ATTEMPTS):
            process = _Process(self._scratch)
            with self._lock:
                self._running.add(process)
                ended = self._ended
            if not ended and process.is_ready():
                return process
            self._stop(process)
            if ended or self._ended:
                break
        raise MemdiagError(phrase("errors.no-process"), phrase("errors.no-process.hint"))

    def _stop(self, process: _Process | None) -> None:
        if process is not None:
            with self._lock:
                self._running.discard(process)
            process.kill()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            running = list(self._running)
        for process in running:
            process.kill()


class _Process:
    """One process, from its start to its end."""

    def __init__(self, scratch: str) -> None:
        # BLAS would start one thread per processor in each process. Files that a killed process leaves are in the
        # folder.
        environment = {**dict.fromkeys(_THREADS, "1"), **os.environ, **dict.fromkeys(_FOLDERS, scratch)}
        is_debugging = os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}
        self._child = subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if is_debugging else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is handled by the command, which ends its processes
        )
        self._into, self._out = cast("IO[bytes]", self._child.stdin), cast("IO[bytes]", self._child.stdout)
        self.num_files = 0

    def is_ready(self) -> bool:
        """Waits until it has loaded its modules; returns False if it ended instead."""
        return self._line().strip() == READY.encode()

    def ask(self, task: Task) -> Result | None:
        """Returns the result of a task, or None if the process died."""
        self.num_files += 1
        try:
            self._into.write(json.dumps(task).encode() + b"\n")
            self._into.flush()
            answer: Result = json.loads(self._line())
        except (OSError, ValueError):  # it ended before it received everything, or during its answer
            return None
        return answer

    def _line(self) -> bytes:
        with contextlib.suppress(OSError, ValueError):
            return self._out.readline()
        return b""

    def kill(self) -> None:
        """Ends it at once; safe to call twice."""
        with contextlib.suppress(OSError):
            self._child.kill()
        with contextlib.suppress(OSError):
            self._child.wait()
        for pipe in (self._into, self._out):
            with contextlib.suppress(OSError):  # unsent data is dropped
                pipe.close()


def processors() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _get(done: Any) -> Any:
    """Waits for a result with a timeout, since on some systems nothing interrupts a wait."""
    while True:
        try:
            return done.get(timeout=_PAUSE)
        except queue.Empty:
            continue
