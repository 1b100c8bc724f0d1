"""torch_npu's own allocator on a simulated runtime: returns the result of a program.

The simulated runtime is not part of this repository: a folder with ``run.sh`` (sets the library path and runs a
command) and ``venv/bin/python`` with torch and torch_npu. The device memory is read when the library is loaded, so
there is one worker for each.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.allocator.programs import Program

OPS = ("alloc", "free", "empty_cache", "record_stream")
RAISED = 3
NEVER = 1_000_000_000  # queries until an event is complete


@dataclass
class Done:
    """The result of a program.

    Attributes:
        status, addr: Per call: 0 ok, 1 out of memory, 2 skipped, 3 this or an earlier call raised; address -1: none.
        checked, values: Calls after which the counters were read (one row each, in the order of ``rows.COUNTERS``; -1
            if unknown).
        log: Its own entries: action, address, size.
    """

    status: np.ndarray
    addr: np.ndarray
    checked: np.ndarray
    values: np.ndarray
    log: np.ndarray


class Worker:
    """A process with torch_npu in it that runs programs on one device."""

    def __init__(self, folder: Path, total: int, done: str, scratch: Path) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
        env |= {
            "FAKE_NPU_TOTAL": str(total),
            "FAKE_NPU_DATA": "0",
            "TASK_QUEUE_ENABLE": "0",
            "FAKE_NPU_EVENT_LAG": "0" if done == "now" else str(NEVER),
        }
        self.scratch, self.number = scratch, 0
        self.errors = (scratch / "errors.txt").open("ab")
        command = [
            folder / "run.sh",
            folder / "venv/bin/python",
            "-W",
            "ignore",
            Path(__file__).with_name("npu_worker.py"),
        ]
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def run(self, program: Program) -> Done | None:
        """Runs a program; returns None if the process ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        path = self.scratch / f"program-{self.number}.npz"
        self.number += 1
        columns = {
            name: np.array([call[k] for call in program.calls], np.int64)
            for name, k in (("id", 1), ("size", 2), ("stream", 3))
        }
        np.savez(path, op=np.array([OPS.index(call.op) for call in program.calls]), conf=program.conf, **columns)
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        while self.process.stdout.readline() not in {"done\n", ""}:
            pass
        out = path.with_name(path.name + ".out.npz")
        path.unlink()
        if not out.exists():
            return None
        with np.load(out) as found:
            result = Done(*(found[name] for name in ("status", "addr", "checked", "values", "log")))
        out.unlink()
        return result

    def close(self) -> None:
        self.process.communicate()
        self.errors.close()
