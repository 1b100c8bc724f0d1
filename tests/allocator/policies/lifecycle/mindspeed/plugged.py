"""MindSpeed's allocator in C++, compiled, run on the calls of a workload, and compared with memdiag's simulation.

It runs in two places: alone, on a device that only counts, and plugged into torch_npu on the simulated NPU
(``drive.py``).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies.lifecycle.marks import KINDS, HookMarks
from memdiag.allocator.result import OUT_OF_MEMORY, Replay
from memdiag.allocator.workload import Workload
from memdiag.phantom import build, launch
from memdiag.phantom.profiles import choose

HERE = Path(__file__).parent
CORE = ("settings", "recorder", "heap", "allocator", "process")
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-Wall", "-Wextra")
(
    MALLOC,
    FREE,
    EMPTY_CACHE,
    SET_FRACTION,
    PRECISE_START,
    PRECISE_END,
    FORWARD_START,
    FORWARD_END,
    STEP_START,
    STEP_END,
    EXTERNAL,
) = range(11)
HOOKS = {
    "precise_begin": PRECISE_START,
    "precise_end": PRECISE_END,
    "forward_begin": FORWARD_START,
    "forward_end": FORWARD_END,
    "step_begin": STEP_START,
    "step_end": STEP_END,
    "release": EMPTY_CACHE,
}
OPS = {
    w.ALLOC: MALLOC,
    w.FREE: FREE,
    w.FREE_REQUESTED: FREE,
    w.EMPTY_CACHE: EMPTY_CACHE,
    w.SET_FRACTION: SET_FRACTION,
    w.EXTERNAL: EXTERNAL,
}
# Rows of process.h.
ROW = np.dtype(
    [
        (name, np.int64)
        for name in (
            "call",
            "device",
            "requested",
            "lifetime",
            "pool",
            "level",
            "segment",
            "offset",
            "size",
            "reserved",
            "allocated",
            "retries",
            "ooms",
            "segments_made",
            "segments_released",
        )
    ]
)
NOT_AT_ALL = 6


def compiled(folder: Path, *, alone: bool, sources: Path = HERE) -> Path:
    """Returns the program that runs alone, or the library for torch_npu, compiled into the folder.

    Raises:
        MemdiagError: No compiler was found.
    """
    made = folder / ("alone" if alone else "mindspeed.so")
    names = (*CORE, "alone" if alone else "plug")
    compiler = build.find_compiler("c++")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(lambda name: _object(compiler, sources / f"{name}.cpp", made), names))
    compiler.run([*([] if alone else ["-shared"]), "-o", made, *objects])
    return made


def _object(compiler: build.Compiler, source: Path, made: Path) -> Path:
    path = made.with_name(f"{made.name}.{source.stem}.o")
    compiler.run([*FLAGS, "-c", "-o", path, source])
    return path


@dataclass(frozen=True)
class Calls:
    """Calls for the allocator.

    Attributes:
        rows: Kind, tensor, size, stream of each.
        number: Index of the workload's call, or -1 for a hook or a call that creates the initial state.
        num_before: Number of leading calls that create the initial state.
    """

    rows: np.ndarray
    number: np.ndarray
    num_before: int

    @classmethod
    def of(cls, workload: Workload, marks: HookMarks, fraction: float | None = None) -> Calls:
        """Puts the marks between the calls.

        The initial state is created by address, in a separate phase.
        """
        rows: list[tuple[int, int, int, int]] = []
        number: list[int] = []

        def add(call: int, tensor: int = 0, size: int = 0, stream: int = 0, of: int = -1) -> None:
            rows.append((call, tensor, size, stream))
            number.append(of)

        if fraction is not None:
            add(SET_FRACTION, size=round(fraction * 1e9))
        if before := _before(workload):
            add(PRECISE_START)
            for tensor, size, stream in before:
                add(MALLOC, tensor, size, stream)
            add(PRECISE_END)
        num_before = len(rows)
        hooks = list(zip(marks.at.tolist(), marks.kind.tolist(), strict=True))[::-1]
        columns = (getattr(workload, name).tolist() for name in ("op", "tensor", "size", "stream"))
        for at, (op, tensor, size, stream) in enumerate(zip(*columns, strict=True)):
            while hooks and hooks[-1][0] <= at:
                add(HOOKS[KINDS[hooks.pop()[1]]])
            if op in OPS and not (op == w.ALLOC and (size <= 0 or tensor < 0)):
                add(OPS[op], tensor, size, stream, at)
        return cls(np.array(rows, np.int64).reshape(-1, 4), np.array(number, np.int64), num_before)


def _before(workload: Workload) -> list[tuple[int, int, int]]:
    start = workload.start
    rows = np.flatnonzero(~start.block_pending)
    where = start.block_range[rows]
    rows = rows[np.argsort(start.base[where] + start.block_off[rows], kind="stable")]
    unnamed = iter(range(workload.num_tensors, workload.num_tensors + len(rows)))
    return [
        (
            int(start.block_tensor[i]) if start.block_tensor[i] >= 0 else next(unnamed),
            int(start.block_requested[i] if start.block_requested[i] > 0 else start.block_size[i]),
            int(start.stream[start.block_range[i]]),
        )
        for i in rows
    ]


@dataclass(frozen=True)
class Run:
    """Calls and their environment: a device of ``total`` bytes, and settings (PYTORCH_NPU_ALLOC_CONF, ALR_MAX)."""

    calls: Calls
    total: int
    conf: str = ""
    alr_max: int | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings as environment variables."""
        alr_max = {} if self.alr_max is None else {"ALR_MAX": str(self.alr_max)}
        return {**({"PYTORCH_NPU_ALLOC_CONF": self.conf} if self.conf else {}), **alr_max}


def run_alone(program: Path, run: Run, folder: Path) -> np.ndarray:
    """Returns the log of the calls on a device that only counts."""
    given, log = folder / "calls.bin", folder / "alone.log"
    run.calls.rows.tofile(given)
    subprocess.run(
        [str(word) for word in (program, given, log, run.total)], env={**_plain(), **run.settings}, check=True
    )
    return np.fromfile(log, ROW)


def run_on_npu(python: str, library: Path, runs: Sequence[Run], folder: Path, row: np.dtype = ROW) -> list[np.ndarray]:
    """Returns the logs of the calls, issued through torch_npu on simulated NPUs, one process for all runs of a device.

    ``row`` is the type of the rows that the library, or original.py, writes.

    Memory that other processes hold throughout is reserved to the byte, like a runtime's own; changing amounts take
    whole pages.
    """
    given: dict[str, list[Path]] = {}
    for number, run in enumerate(runs):
        rows, context = run.calls.rows, 0
        outside = np.flatnonzero(rows[:, 0] == EXTERNAL)
        if len(outside) == 1 and outside[0] < np.argmax(rows[:, 0] == MALLOC):
            rows, context = np.delete(rows, outside, 0), rows[outside[0], 2]
        path = folder / f"calls{number}.npz"
        words = [f"{key}={value}" for key, value in run.settings.items()]
        np.savez(path, environment=words, **dict(zip(("op", "id", "size", "stream"), rows.T, strict=True)))
        given.setdefault(f"npu:910b-64g,total={run.total},context={context}", []).append(path)
    for device, paths in given.items():
        command = [python, str(HERE / "drive.py"), str(library), *map(str, paths)]
        environment = launch.environment_for(choose(device), command, _plain())
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return [np.fromfile(folder / f"calls{number}.npz.log", row) for number in range(len(runs))]


def _plain() -> dict[str, str]:
    return {
        key: value
        for key, value in os.environ.items()
        if key not in {"PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "ALR_MAX"}
    }


def rows_of_calls(calls: Calls, log: np.ndarray) -> np.ndarray:
    """Returns, for each call, the log row that it left, or -1 (the free of an unknown tensor, and EXTERNAL)."""
    at = np.full(len(calls.rows), -1, np.int64)
    live: set[int] = set()
    row = 0
    kinds, failed = log["call"].tolist(), (log["level"] == NOT_AT_ALL).tolist()
    for i, (call, tensor, _, _) in enumerate(calls.rows.tolist()):
        if call == EXTERNAL or (call == FREE and tensor not in live):
            continue
        assert kinds[row] == call, f"call {i} is {call}, its row in the log {kinds[row]}"
        if call == MALLOC and not failed[row]:
            live.add(tensor)
        live.discard(tensor if call == FREE else -1)
        at[i] = row
        row += 1
    assert row == len(log), f"{len(log) - row} rows are of no call"
    return at


@dataclass(frozen=True)
class Compared:
    """Number of compared calls, with successful and failed allocations, and the differences in words."""

    num_calls: int
    num_allocs: int
    num_ooms: int
    levels: tuple[int, ...]  # allocations at each level, 1 to 5
    differences: tuple[str, ...]


def compare(replay: Replay, calls: Calls, log: np.ndarray) -> Compared:
    """Compares log and simulation call by call: level, lifetime, segment, offset, size, sums, retries and failures."""
    at = rows_of_calls(calls, log)
    used = np.flatnonzero((at >= 0) & (calls.number >= 0))
    mine, number = log[at[used]], calls.number[used]
    is_alloc = mine["call"] == MALLOC
    is_failed = is_alloc & (mine["level"] == NOT_AT_ALL)
    lifecycle = replay.lifecycle  # type: ignore[attr-defined]
    before = log[at[calls.num_before - 1]] if calls.num_before else np.zeros(1, ROW)[0]
    pairs = {
        "failed": (is_failed, replay.status[number] == OUT_OF_MEMORY),
        "long": (mine["lifetime"] == 2, is_alloc & lifecycle.is_long[number]),
        "level": (np.where(is_alloc, mine["level"], 0), np.where(is_alloc, lifecycle.level[number], 0)),
        "segment": (mine["segment"], replay.seg[number]),
        "offset": (mine["offset"], replay.off[number]),
        "size": (mine["size"], replay.block[number]),
        "reserved": (mine["reserved"], replay.reserved[number]),
        "allocated": (mine["allocated"], replay.allocated[number]),
        "retries": (mine["retries"] - before["retries"], replay.retries[number]),
        "ooms": (mine["ooms"], replay.ooms[number]),
        "segments made": (mine["segments_made"] - before["segments_made"], replay.device_allocs[number]),
        "segments released": (mine["segments_released"] - before["segments_released"], replay.device_frees[number]),
    }
    found = []
    for name, (plugged, simulated) in pairs.items():
        wrong = np.flatnonzero(plugged != simulated)
        if len(wrong):
            i = wrong[0]
            found.append(
                f"{name}: {len(wrong)} of {len(used)} calls, first call {number[i]}: {plugged[i]} plugged in, "
                f"{simulated[i]} simulated"
            )
    levels = tuple(int(np.count_nonzero(mine["level"][is_alloc] == level)) for level in range(1, NOT_AT_ALL))
    return Compared(len(used), int(is_alloc.sum()), int(is_failed.sum()), levels, tuple(found))
