"""PyTorch itself on a simulated device, with graphs and private pools: returns the snapshot of a seed's run.

The simulated device is not part of this repository: a folder with ``with_fake.sh`` (sets the library path and runs the
Python that has torch). The device memory is read when the library is loaded, so there is one worker for each.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path


class Worker:
    """A process with torch in it that runs programs on one device.

    ``done``: when streams are finished (now, manual).
    """

    def __init__(self, folder: Path, total: int, done: str, scratch: Path) -> None:
        env = {
            key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_") and key != "LD_PRELOAD"
        }
        env |= {
            "FAKE_CUDA_TOTAL_BYTES": str(total),
            "FAKE_CUDA_CONTEXT_BYTES": "0",
            "FAKE_CUDA_EVENTS": done,
            "FAKE_CUDA_BLAS": "1",
            "FAKE_CUDA_ADDR": "bump",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        self.scratch, self.number = scratch, 0
        self.errors = (scratch / "errors.txt").open("ab")
        command = [folder / "with_fake.sh", "-W", "ignore", Path(__file__).with_name("capture_worker.py")]
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def run(self, seed: int, num_calls: int, conf: str) -> Path | None:
        """Runs a program; returns None if it did not complete."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        path = self.scratch / f"program-{self.process.pid}-{self.number}.pickle"
        self.number += 1
        self.process.stdin.write(f"{seed} {num_calls} {shlex.quote(conf)} {shlex.quote(str(path))}\n")
        self.process.stdin.flush()
        while not (line := self.process.stdout.readline()).startswith("done ") and line:
            pass
        return path if path.exists() else None

    def close(self) -> None:
        self.process.communicate()
        self.errors.close()
