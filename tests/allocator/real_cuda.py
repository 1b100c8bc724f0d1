"""PyTorch's own CUDA allocator on a simulated device: returns rows and log of a program.

The simulated device is not part of this repository: a folder with ``bin/oracle_native``, linked with the libc10_cuda of
one torch version, that reads calls and writes rows as described below. For several kinds of pools, it must use the size
of a pool_begin: when the pool is created, 1 is setNoSplit, 2 setUseOnOOM (reset before a pool_release), 3 both.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.allocator.programs import Program

OPS = (
    "alloc",
    "free",
    "empty_cache",
    "record_stream",
    "complete",
    "sync",
    "set_fraction",
    "pool_begin",
    "pool_end",
    "pool_release",
    "reset_peak",
    "external",
    "set_total",
)
CALL = np.dtype([("op", "<i4"), ("stream", "<i4"), ("id", "<i8"), ("size", "<i8")])
FIELDS = (
    "status",
    "addr",
    "seg",
    "off",
    "kind",
    "reserved",
    "allocated",
    "active",
    "requested",
    "inactive_split",
    "n_allocated",
    "n_segments",
    "n_active",
    "n_inactive_split",
    "retries",
    "ooms",
    "sync_all",
    "device_allocs",
    "device_frees",
    "device_used",
    "driver_end",
    "trace_end",
)
ROW = np.dtype([(name, "<i8") for name in FIELDS])
ENTRY = np.dtype([("action", "<i4"), ("device", "<i4"), ("addr", "<u8"), ("size", "<u8"), ("stream", "<u8")])
DRIVER = np.dtype([("kind", "<i4"), ("dev", "<i4"), ("addr", "<u8"), ("size", "<u8"), ("seg", "<i8")])
MALLOC, RESERVE = 1, 4
RAISED = 3


class Crashed(Exception):
    """The allocator ended the process."""


@dataclass
class Rows:
    """Its result: one row per call, its own log, and the addresses of its ranges, in order."""

    rows: np.ndarray
    log: np.ndarray
    bases: np.ndarray


def real(folder: Path, program: Program, *, addresses: str = "bump") -> Rows:
    """Runs a program. ``addresses``: how the driver chooses them (bump, first, lifo, down).

    Raises:
        Crashed: It does so after continuing with memory that it has released.
    """
    calls = np.zeros(len(program.calls), CALL)
    calls["op"] = [OPS.index(call.op) for call in program.calls]
    for name, k in (("id", 1), ("size", 2), ("stream", 3)):
        calls[name] = [call[k] for call in program.calls]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_") and key != "LD_PRELOAD"}
    env |= {
        "FAKE_CUDA_TOTAL_BYTES": str(program.total),
        "FAKE_CUDA_CONTEXT_BYTES": "0",
        "FAKE_CUDA_ADDR": addresses,
        "FAKE_CUDA_EVENTS": program.done,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    if program.conf:
        env["PYTORCH_CUDA_ALLOC_CONF"] = program.conf
    with tempfile.TemporaryDirectory() as scratch:
        given, out = Path(scratch) / "calls.bin", Path(scratch) / "out"
        calls.tofile(given)
        done = subprocess.run(
            [folder / "bin/oracle_native", given, out], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Crashed(f"exit status {done.returncode}: {done.stderr[-300:]}")
        driver = np.fromfile(f"{out}.driver", DRIVER)
        ranges = driver[np.isin(driver["kind"], (MALLOC, RESERVE))]
        return Rows(
            np.fromfile(f"{out}.rows", ROW), np.fromfile(f"{out}.trace", ENTRY), ranges["addr"].astype(np.int64)
        )
