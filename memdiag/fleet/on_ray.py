"""The engine on a cluster: the same function on the same tasks, as Ray tasks.

Nodes need memdiag, and the files under the same paths.

A task whose process dies is tried once more, last of all, as on this machine. A worker is replaced after some files,
and no more tasks are handed out than keep the cluster busy, so that the command's own memory does not grow with the
number of files.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.local import FILES_A_PROCESS, processors
from memdiag.fleet.work import KILLED, Result, Task, work

_AHEAD = 2  # tasks handed out for each processor of the cluster


class OnRay:
    """A Ray cluster.

    Args:
        workers: How many files at once, at most; None: as many as the cluster has processors.
        address: Of the cluster; None: RAY_ADDRESS, the cluster of this machine, or one started here for the while.

    Raises:
        MemdiagError: Ray is not installed, or the cluster does not answer.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise MemdiagError(
                "--engine ray needs Ray, which is not installed", "pip install 'memdiag[fleet]'"
            ) from None
        self._ray: Any = ray
        self._is_own = not ray.is_initialized()
        self._quiet = ExitStack()
        # Ray prints on stdout when a worker dies; that is for data, and a file that it was to blame for is told of
        # anyway.
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - the stack closes it
        self._quiet.enter_context(nowhere)
        self._quiet.enter_context(redirect_stdout(nowhere))
        if self._is_own:
            os.environ.setdefault(
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
            )  # as it will be; without it Ray warns of that
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
            except ConnectionError:  # no cluster here: one for the while
                self._ray.init(address="local", num_cpus=workers or processors(), **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            first = str(error).strip().partition("\n")[0]
            raise MemdiagError(
                f"the Ray cluster does not answer: {first}",
                "start it (ray start --head), or name it: --address HOST:6379",
            ) from None

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it is done."""
        ray, errors = self._ray, self._ray.exceptions
        # Ray itself would try again without end where a node runs out of memory.
        remote = ray.remote(num_cpus=1, max_retries=0, max_calls=FILES_A_PROCESS)(work)
        waiting = deque(range(len(tasks)))
        again: set[int] = set()
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _AHEAD * self.workers:
                    number = waiting.popleft()
                    running[remote.remote(tasks[number])] = number
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    number = running.pop(reference)
                    try:
                        yield number, ray.get(reference)
                    except (
                        errors.WorkerCrashedError,
                        errors.OutOfMemoryError,
                        errors.NodeDiedError,
                        errors.LocalRayletDiedError,
                    ):
                        if number in again:
                            yield number, {"error": KILLED}
                        else:
                            again.add(number)
                            waiting.append(number)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leaves the cluster; one that was started for the while ends."""
        if self._is_own:
            self._ray.shutdown()
        self._quiet.close()
