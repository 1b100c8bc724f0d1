"""The engine on a cluster: the same function for the same tasks, as Ray tasks.

Nodes need memdiag, and the files under the same paths.

A task whose process dies is tried once more, last of all, as in the local engine. A worker is replaced after some
files. Only as many tasks are submitted as keep the cluster busy, so that the command's own memory does not grow with
the number of files.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.local import FILES_A_PROCESS, processors
from memdiag.fleet.work import KILLED, Result, Task, work
from memdiag.text import phrase

_PAUSE = 0.2  # seconds between checks whether the engine was closed
_AHEAD = 2  # tasks submitted for each processor of the cluster


class OnRay:
    """A Ray cluster.

    Args:
        workers: Maximum number of files at once, or None for the number of processors of the cluster.
        address: Address of the cluster, or None for RAY_ADDRESS, the cluster of this machine, or a temporary one.

    Raises:
        MemdiagError: Ray is not installed, or the cluster does not answer.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise MemdiagError(phrase("errors.ray"), "pip install 'memdiag[fleet]'") from None
        self._ray: Any = ray
        self._num_waiting, self._is_closed = 0, False
        self._state = threading.Condition()
        self._is_own = not ray.is_initialized()
        self._quiet = ExitStack()
        # Ray prints on stdout when a worker dies. stdout is for data, and the file that caused it is reported anyway.
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - the stack closes it
        self._quiet.enter_context(nowhere)
        self._quiet.enter_context(redirect_stdout(nowhere))
        if self._is_own:
            # the future default; without it, Ray prints a warning
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            try:
                self._connect(address, workers)
            except BaseException:
                self._quiet.close()
                raise
        self.workers = workers or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def _connect(self, address: str | None, workers: int | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        try:
            if address is not None or os.environ.get("RAY_ADDRESS"):
                del options["include_dashboard"]
                self._ray.init(address=address or "auto", **options)
                return
            try:
                self._ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
            except ConnectionError:  # no cluster here: start a temporary one
                self._ray.init(address="local", num_cpus=workers or processors(), **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            raise MemdiagError(
                phrase("errors.ray-silent", first=str(first)),
                phrase("errors.ray-silent.hint"),
            ) from None

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it completes. Several threads may call it.

        After ``close``, it ends the tasks that are running, and yields no more.
        """
        ray = self._ray
        # Ray itself would retry endlessly if a node runs out of memory.
        remote = ray.remote(num_cpus=1, max_retries=0, max_calls=FILES_A_PROCESS)(work)
        waiting = deque(range(len(tasks)))
        again: set[int] = set()
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                with self._in_use() as is_open:
                    if not is_open:
                        return
                    while waiting and len(running) < _AHEAD * self.workers:
                        number = waiting.popleft()
                        running[remote.remote(tasks[number])] = number
                    ready, _ = ray.wait(list(running), num_returns=1, timeout=_PAUSE)
                    done = [(running.pop(reference), self._result(reference)) for reference in ready]
                for number, result in done:
                    if result is not None or number in again:
                        yield number, result or {"error": KILLED}
                    else:
                        again.add(number)
                        waiting.append(number)
        finally:
            if not (self._is_own and self._is_closed):  # otherwise the cluster has ended them
                for reference in running:
                    ray.cancel(reference, force=True)

    def _result(self, reference: Any) -> Result | None:
        """Returns the result of a task that has ended, or None if its process died."""
        errors = self._ray.exceptions
        died = (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError, errors.LocalRayletDiedError)
        try:
            result: Result = self._ray.get(reference)
        except died:
            return None
        return result

    @contextmanager
    def _in_use(self) -> Iterator[bool]:
        """Yields whether the engine is open; ``close`` waits until the block ends. Used later, Ray would start anew."""
        with self._state:
            self._num_waiting += 1
        try:
            yield not self._is_closed
        finally:
            with self._state:
                self._num_waiting -= 1
                self._state.notify_all()

    def close(self) -> None:
        """Leaves the cluster, which ends the tasks that are running; a temporary cluster is shut down."""
        with self._state:
            self._is_closed = True
            self._state.wait_for(lambda: not self._num_waiting)
        if self._is_own:
            self._ray.shutdown()
        self._quiet.close()
