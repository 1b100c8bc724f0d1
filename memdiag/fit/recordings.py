"""Runs of configurations on simulated devices, several at a time, each kept in the folder of the search.

A run is kept under a hash of all that it depends on: the words of the command, its variables, the device, the rank, the
program's files, and the installed packages. The same run is never made twice, and an interrupted search continues.
Runs are processes of this machine, or tasks of a fleet's engine on the nodes of a cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import MemdiagError
from memdiag.fit.code_files import code_hash, named_files
from memdiag.fleet.work import KILLED
from memdiag.output_file import write_whole
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.fleet.engines import FleetEngine

CHILD = "memdiag.fit.child"
ORDER, RUN, OUTPUT, TRACES = "order.json", "run.json", "output.txt", "traces"
# Variables that change a program's allocations; others are assumed not to.
_VARIABLES = ("PYTORCH_", "TORCH", "NCCL", "HCCL", "CUDA_", "ASCEND", "MEMDIAG_PHANTOM", "CUBLAS", "CUDNN", "OMP_")
# Variables with which a node of a cluster finds the same programs and libraries.
_PLACES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "MEMDIAG")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)(?::|$)")
_KILLED = 137  # exit status for a process that was killed
_BY_SIGNAL = 128  # exit statuses from here on mean that a signal ended the program
_MEMORY_SHARE = 0.8  # of the host's available memory


@dataclass(frozen=True)
class RunOrder:
    """One process to record.

    Attributes:
        command: Words of the command, with its values.
        variables: Variables to set, with their values.
        device: The simulated device.
        rank: Rank to run alone as, or None to run the command as it is.
        world: Number of ranks, or None.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str]
    device: str
    rank: int | None
    world: int | None


@dataclass(frozen=True)
class Recorded:
    """A run that has ended.

    Attributes:
        folder: Its folder: traces, output, order.
        status: Exit status of the command.
        seconds: Its duration.
        host_bytes: Peak of the host memory of its largest process.
        is_reused: Whether an earlier search made it.
    """

    folder: Path
    status: int
    seconds: float
    host_bytes: int
    is_reused: bool

    @property
    def output(self) -> Path:
        """File with the output of the command."""
        return self.folder / OUTPUT

    @property
    def error(self) -> str:
        """The exception that ended a failed command, else the last line of its output; "" if it did not fail."""
        if not self.status:
            return ""
        lines = [line.strip() for line in self.output.read_text(encoding="utf-8", errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(("hint:", "memdiag:"))]
        raised = [line for line in said if _EXCEPTION.match(line)]
        last = (raised or said)[-1:] or [f"exit status {self.status}"]
        return f"{signal.Signals(-self.status).name}: {last[0]}"[:300] if self.status < 0 else last[0][:300]


@dataclass
class Recorder:
    """Makes runs.

    Attributes:
        folder: Folder of the search.
        jobs: Runs at a time, or None for as many as processors and memory allow.
        engine: Engine of a fleet that makes the runs, or None for processes of this machine.
        seconds: Durations of the runs that were made.
    """

    folder: Path
    jobs: int | None = None
    engine: FleetEngine | None = None
    seconds: list[float] = field(default_factory=list)
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _host_bytes: int = 0
    _code: dict[tuple[str, tuple[Path, ...]], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        most = os.cpu_count() if self.engine is None else self.engine.workers
        self._pool = ThreadPoolExecutor(max_workers=max(self.jobs or most or 1, 1))

    @property
    def num_at_a_time(self) -> int:
        """Runs to have at a time: on this machine, one until the memory that a run needs on the host is known."""
        if self.jobs is not None:
            return self.jobs
        if self.engine is not None:
            return self.engine.workers
        if not self._host_bytes:
            return 1
        return max(min(os.cpu_count() or 1, int(_MEMORY_SHARE * available_bytes() / self._host_bytes)), 1)

    def start(self, order: RunOrder) -> Future[Recorded]:
        """Begins a run."""
        return self._pool.submit(self.record, order)

    def record(self, order: RunOrder) -> Recorded:
        """Makes a run, or returns the kept one."""
        folder = self.folder / "runs" / self._key(order)
        if (kept := _kept(folder)) is not None:
            self._host_bytes = max(self._host_bytes, kept.host_bytes)
            return kept
        if folder.exists():
            shutil.rmtree(folder)  # of an interrupted search
        folder.mkdir(parents=True)
        order_fields: dict[str, Any] = {
            "command": order.command,
            "variables": dict(order.variables),
            "device": order.device,
            "rank": order.rank,
            "world": order.world,
            "folder": str(folder.resolve() / TRACES),
        }
        (folder / ORDER).write_text(json.dumps(order_fields, indent=1), encoding="utf-8")
        began = time.monotonic()
        status, host_bytes = self._run(folder) if self.engine is None else self._run_on(self.engine, folder)
        seconds = time.monotonic() - began
        facts = {"status": status, "seconds": round(seconds, 3), "host_bytes": host_bytes}
        if 0 <= status < _BY_SIGNAL:  # a run that a signal ended is made again: by Ctrl-C, or for lack of host memory
            write_whole(folder / RUN, json.dumps(facts))
        self.seconds.append(seconds)
        self._host_bytes = max(self._host_bytes, host_bytes)
        return Recorded(folder, status, seconds, host_bytes, is_reused=False)

    def _run(self, folder: Path) -> tuple[int, int]:
        """Runs the recording process; returns its exit status and the peak of its host memory."""
        with (folder / OUTPUT).open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - this Python, with a file of ours
                [sys.executable, "-m", CHILD, str(folder / ORDER)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            self._processes.add(process)
            try:
                _, status, used = os.wait4(process.pid, 0)
            finally:
                self._processes.discard(process)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, used.ru_maxrss * 1024

    def _run_on(self, engine: FleetEngine, folder: Path) -> tuple[int, int]:
        """Runs the recording process on a node; returns its exit status and the peak of its host memory."""
        task = {
            "url": str(folder.resolve() / ORDER),
            "name": folder.name,
            "action": "run",
            "module": CHILD,
            "folder": str(Path.cwd()),
            "output": str(folder.resolve() / OUTPUT),
            "variables": {name: os.environ[name] for name in os.environ if name.startswith(_VARIABLES + _PLACES)},
        }
        result = dict(engine.map([task])).get(0, {"error": KILLED})  # an engine that is closed returns no result
        if result.get("error") == KILLED:
            return _KILLED, 0
        if "error" in result:
            raise MemdiagError(result["error"]["message"], result["error"]["hint"])
        return int(result["facts"]["status"]), int(result["facts"]["host_bytes"])

    def stop(self) -> None:
        """Ends all runs, and closes the engine. Their folders have no result, so a later search makes them again."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self.engine is not None:
            self.engine.close()
        for process in list(self._processes):
            process.terminate()
        self._pool.shutdown(wait=True)

    def _key(self, order: RunOrder) -> str:
        files = named_files(order.command)
        if (order.command[0], files) not in self._code:
            self._code[order.command[0], files] = code_hash(order.command, files)
        variables = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        facts = {
            "memdiag": __version__,
            "command": order.command,
            "variables": sorted({**variables, **order.variables}.items()),
            "device": order.device,
            "rank": order.rank,
            "world": order.world,
            "folder": str(Path.cwd()),
            "code": self._code[order.command[0], files],
        }
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def available_bytes() -> int:
    """Returns the host memory that new processes can use."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 4 << 30


def _kept(folder: Path) -> Recorded | None:
    """Returns the finished run in a folder, or None."""
    try:
        facts = json.loads((folder / RUN).read_text(encoding="utf-8"))
        return Recorded(folder, int(facts["status"]), float(facts["seconds"]), int(facts["host_bytes"]), is_reused=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
