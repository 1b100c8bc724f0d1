"""Recorded rows of the real allocators (folders of .npz files), and the engine's rows for the same calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from memdiag.allocator.replay import replay
from memdiag.allocator.result import OUT_OF_MEMORY, Replay
from memdiag.allocator.workload import ALLOC, NOTHING, OP_CODES, Workload

COLUMNS = ("reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees")
OK = 0


def workload_of(recorded: Any) -> Workload:
    """Returns the calls of a file."""
    names = [str(name) for name in recorded["ops"]]
    op = np.array([OP_CODES.get(name, NOTHING) for name in names], np.int8)[recorded["op"]]
    keys, stream = recorded["id"].astype(np.int64), recorded["stream"].astype(np.int32)
    is_pool = np.isin(op, [OP_CODES[name] for name in ("pool_begin", "pool_end", "pool_release")])
    is_tensor = np.isin(op, [OP_CODES[name] for name in ("alloc", "free", "record_stream")])
    pools, tensors = np.unique(keys[is_pool]), np.unique(keys[is_tensor])
    pool, tensor = np.full(len(op), -1, np.int32), np.full(len(op), -1, np.int32)
    pool[is_pool] = np.searchsorted(pools, keys[is_pool]) + 1
    tensor[is_tensor] = np.searchsorted(tensors, keys[is_tensor])
    return Workload(
        op=op,
        tensor=tensor,
        size=recorded["size"].astype(np.int64),
        stream=stream,
        pool=pool,
        row=np.arange(len(op), dtype=np.int64),
        num_rows=len(op),
        num_tensors=len(tensors),
        streams=np.arange(max(int(stream.max(initial=0)) + 1, 1), dtype=np.uint64),
        pools=((0, 0), *((0, int(key)) for key in pools)),
        done=str(recorded["done"]) if "done" in recorded else "now",
        capacity_bytes=int(recorded["total"]),
    )


def expected(recorded: Any, setting: int) -> dict[str, np.ndarray]:
    """Returns the rows of the real allocator; seg, off and addr count only for successful requests."""
    if f"{setting}/addr" in recorded:
        columns = {
            name: recorded[f"{setting}/{name}"].astype(np.int64) for name in ("oom", "addr", "reserved", "allocated")
        }
        return {"status": columns.pop("oom"), **columns}
    found = {name: np.cumsum(recorded[f"{setting}/{name}"], dtype=np.int64) for name in ("seg", "off", *COLUMNS)}
    return {"status": recorded[f"{setting}/status"].astype(np.int64), **found}


def columns_of(result: Replay, names: Any) -> dict[str, np.ndarray]:
    """Returns the same columns of a replay; addr is relative to the lowest address of the run."""
    found = {name: np.asarray(getattr(result, name), np.int64) for name in names if name != "addr"}
    if "addr" in names:
        placed = result.seg >= 0
        address = (
            np.where(placed, result.bases[np.maximum(result.seg, 0)] + result.off, -1)
            if len(result.bases)
            else result.off
        )
        found["status"] = (found["status"] == OUT_OF_MEMORY).astype(np.int64)  # these files record no other status
        found["addr"] = np.where(placed, address - (address[placed].min() if placed.any() else 0), -1)
    return found


def failing_rows(recorded: Any, setting: int, work: Workload, policy: str) -> tuple[np.ndarray, str]:
    """Returns the different rows, and the difference in the first."""
    conf = str(recorded["confs"][setting])
    result = replay(work, policy, conf=conf, capacity=work.capacity_bytes)
    want = expected(recorded, setting)
    found = columns_of(result, want)
    is_alloc = (work.op == ALLOC) & (want["status"] == OK) & (work.size > 0)
    bad = np.zeros(len(work.op), bool)
    words: dict[str, np.ndarray] = {}
    for name, column in want.items():
        counts = (
            is_alloc if name in ("seg", "off") else column >= 0 if name == "allocated" else np.ones(len(work.op), bool)
        )
        words[name] = counts & (found[name] != column)
        bad |= words[name]
    rows = np.flatnonzero(bad)
    if not len(rows):
        return rows, ""
    at = int(rows[0])
    differing = ", ".join(f"{name} {found[name][at]} and not {want[name][at]}" for name in want if words[name][at])
    return rows, f"row {at}: {differing}"


def files(folder: Path) -> list[Path]:
    """Returns all recorded files of a folder."""
    return sorted(folder.glob("*.npz"))
