"""Handwritten programs, run by both the reference and the compiled allocator."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies.gmlake.replay import StitchReplay, replay_stitch
from memdiag.allocator.policies.gmlake.settings import GMLakeSettings
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.workload import Workload
from tests.allocator.policies.gmlake.stitch_reference import Allocator, OutOfMemory

HOWS = ("exact", "cut", "reused", "stitched", "new", "added", "nothing")
_COUNTED = ("reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees", "maps")


@dataclass
class Program:
    """Calls (op, tensor, size, stream)."""

    calls: list[tuple[int, int, int, int]] = field(default_factory=list)
    done: str = "recorded"

    def alloc(self, tensor: int, size: int, stream: int = 0) -> Program:
        return self.call(w.ALLOC, tensor, size, stream)

    def free(self, *tensors: int) -> Program:
        for tensor in tensors:
            self.call(w.FREE, tensor)
        return self

    def call(self, op: int, tensor: int = -1, size: int = 0, stream: int = 0) -> Program:
        self.calls.append((op, tensor, size, stream))
        return self

    def workload(self) -> Workload:
        op, tensor, size, stream = (np.array([call[i] for call in self.calls], np.int64) for i in range(4))
        n = len(self.calls)
        return Workload(
            op=op.astype(np.int8),
            tensor=tensor.astype(np.int32),
            size=size,
            stream=stream.astype(np.int32),
            pool=np.full(n, -1, np.int32),
            row=np.arange(n),
            num_rows=n,
            num_tensors=1 + max((call[1] for call in self.calls), default=0),
            streams=np.arange(1 + max((call[3] for call in self.calls), default=0), dtype=np.uint64),
            done=self.done,
        )


def replayed(
    program: Program, settings: GMLakeSettings, capacity: int | None = None, *, fraction: float | None = None
) -> StitchReplay:
    return replay_stitch(
        program.workload(), settings, Scenario("stitch", capacity_bytes=capacity, fraction=fraction), log=True
    )


def rows_of(replay: StitchReplay) -> list[dict[str, object]]:
    columns: dict[str, list[object]] = {
        name: getattr(replay, name).tolist() for name in (*_COUNTED, "seg", "off", "block")
    }
    columns["status"] = [("ok", "oom", "skipped")[status] for status in replay.status.tolist()]
    columns["how"] = ["" if how < 0 else HOWS[how] for how in replay.how.tolist()]  # type: ignore[union-attr]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def by_reference(
    program: Program, settings: GMLakeSettings, capacity: int | None = None, fraction: float | None = None
) -> tuple[Allocator, list[dict[str, object]]]:
    """Runs the reference; returns it, and one row per call."""
    allocator = Allocator(settings, capacity, program.done, fraction)
    rows = []
    for call in program.calls:
        row = _do(allocator, *call)
        rows.append(row | {name: getattr(allocator, name) for name in _COUNTED})
    return allocator, rows


def _do(allocator: Allocator, op: int, tensor: int, size: int, stream: int) -> dict[str, object]:
    row: dict[str, object] = {"status": "ok", "seg": -1, "off": -1, "block": -1, "how": ""}
    done = True
    if op == w.ALLOC and size > 0:
        try:
            made = allocator.malloc(tensor, size, stream)
            home, at = made.chunks[0]
            row |= {"seg": home.number, "off": at * home.unit, "block": made.size}
        except OutOfMemory:
            row["status"] = "oom"
        row["how"] = allocator.how
    elif op == w.ALLOC:
        allocator.poll()
        done = False
    elif op in (w.FREE, w.FREE_REQUESTED):
        done = allocator.free(tensor, recorded=op == w.FREE_REQUESTED)
    elif op == w.FREE_COMPLETED:
        done = allocator.complete_free(tensor)
    elif op == w.RECORD_STREAM:
        done = allocator.record_stream(tensor, stream)
    elif op == w.EMPTY_CACHE:
        allocator.empty_cache()
    elif op in (w.COMPLETE, w.SYNC):
        allocator.complete(-1 if op == w.SYNC else stream)
    elif op == w.EXTERNAL:
        allocator.external = size
    elif op == w.SET_FRACTION and allocator.capacity is not None:
        allocator.limit = int(size / 1e9 * allocator.capacity)
    return row if done else row | {"status": "skipped"}


def check(
    program: Program, settings: GMLakeSettings, capacity: int | None = None, *, fraction: float | None = None
) -> StitchReplay:
    """Runs both and compares every row."""
    replay = replayed(program, settings, capacity, fraction=fraction)
    _, expected = by_reference(program, settings, capacity, fraction)
    for number, (mine, other) in enumerate(zip(rows_of(replay), expected, strict=True)):
        assert mine == other, f"call {number} {program.calls[number]}: {mine} but the reference has {other}"
    return replay
