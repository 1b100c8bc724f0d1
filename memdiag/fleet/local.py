"""The engine on this machine: a few processes, each with one file at a time.

Not a pool of ``concurrent.futures``: when one of its processes is killed the whole pool is broken, and nobody knows
which file was to blame. Here each process has a thread that hands it files, so a file whose process dies is tried once
more, last of all, in a fresh one, and the others notice nothing. A process is replaced after some files, so that memory
stays what one file needs, times the processes.
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

FILES_A_PROCESS = 512
_ATTEMPTS = 3  # to start a process
_PAUSE = 0.2  # seconds between two looks at whether somebody pressed Ctrl-C
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from memdiag.fleet.worker import main; main()"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FOLDERS = ("TMPDIR", "TEMP", "TMP")


class Local:
    """Local processes.

    Args:
        workers: How many; None: one for each processor that this process may use.
        address: Not used: there is only here.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:  # noqa: ARG002 - engines are called alike
        self.workers = workers or processors()
        self._running: set[_Process] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._scratch = ""

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it is done.

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
        """Nothing is left to close."""

    def _serve(self, tasks: Sequence[Task], todo: Any, done: Any) -> None:
        """Hands files to one process after another until there are none."""
        process: _Process | None = None
        try:
            while not self._ended:
                try:
                    number, attempts = todo.get(timeout=_PAUSE)
                except queue.Empty:  # a file that another process died of may come back
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
                MemdiagError(f"no process could be started: {error.strerror or error}", "fewer --workers need less")
            )
        except Exception as error:  # noqa: BLE001 - whoever waits for results would wait for ever
            done.put(MemdiagError(f"internal: {type(error).__name__}: {error}", "this is a bug in memdiag"))
        finally:
            self._stop(process)

    def _start(self) -> _Process:
        """Returns a process that is ready for files.

        Raises:
            MemdiagError: None becomes ready, tried several times: one may be killed on the way as well.
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
        raise MemdiagError("no process could be started to read files in", "MEMDIAG_DEBUG=1 shows what it says")

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
        # BLAS would start as many threads as there are processors, in each process. What a killed process leaves lies
        # in the folder.
        environment = {**dict.fromkeys(_THREADS, "1"), **os.environ, **dict.fromkeys(_FOLDERS, scratch)}
        is_told = os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}
        self._child = subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if is_told else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the command, which ends its processes
        )
        self._into, self._out = cast("IO[bytes]", self._child.stdin), cast("IO[bytes]", self._child.stdout)
        self.num_files = 0

    def is_ready(self) -> bool:
        """Waits until it has loaded what it needs; False: it has ended instead."""
        return self._line().strip() == READY.encode()

    def ask(self, task: Task) -> Result | None:
        """Returns the result of a task; None: the process died."""
        self.num_files += 1
        try:
            self._into.write(json.dumps(task).encode() + b"\n")
            self._into.flush()
            answer: Result = json.loads(self._line())
        except (OSError, ValueError):  # gone before it took all, or in the middle of its answer
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
            with contextlib.suppress(OSError):  # what was not sent cannot be
                pipe.close()


def processors() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _get(done: Any) -> Any:
    """Waits for a result; in turns, since on some systems nothing interrupts a wait."""
    while True:
        try:
            return done.get(timeout=_PAUSE)
        except queue.Empty:
            continue
