"""Handwritten programs, run by both the reference and the compiled pools."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies.lifecycle.marks import KINDS, HookMarks
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.workload import Workload
from tests.allocator.policies.lifecycle.lifecycle_reference import MIB, NO_LIMIT, Allocator, OutOfMemory, Settings
from tests.allocator.policies.lifecycle.lifecycle_tables import LONG

OK, OOM, SKIPPED = "ok", "oom", "skipped"


@dataclass
class Program:
    """Calls (op, tensor, size, stream) and marks (next call, kind)."""

    calls: list[tuple[int, int, int, int]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)

    def alloc(self, tensor: int, size: int, stream: int = 0) -> Program:
        self.calls.append((w.ALLOC, tensor, size, stream))
        return self

    def free(self, *tensors: int) -> Program:
        self.calls += [(w.FREE, tensor, 0, 0) for tensor in tensors]
        return self

    def call(self, op: int, size: int = 0) -> Program:
        self.calls.append((op, -1, size, 0))
        return self

    def mark(self, *kinds: str) -> Program:
        self.marks += [(len(self.calls), KINDS.index(kind)) for kind in kinds]
        return self

    @property
    def hooks(self) -> HookMarks:
        return HookMarks.of(self.marks)

    def workload(self, num_calls: int | None = None) -> Workload:
        calls = self.calls[:num_calls]
        op, tensor, size, stream = (np.array([call[i] for call in calls], np.int64) for i in range(4))
        n = len(calls)
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
        )


def conf_of(settings: Settings) -> str:
    parts = []
    if settings.max_split != NO_LIMIT:
        parts.append(f"max_split_size_mb:{settings.max_split // MIB}")
    if settings.default_lc_threshold:
        parts.append(f"default_lc_threshold:{settings.default_lc_threshold}")
    if settings.expandable:
        parts.append("expandable_segments:True")
    if settings.memory_optimize:
        parts.append("open_memory_optimize:true")
    return ",".join(parts)


def replayed(
    program: Program, settings: Settings | None = None, capacity: int | None = None, *, log: bool = False
) -> LifecycleReplay:
    settings = settings or Settings()
    return replay_lifecycle(
        program.workload(),
        program.hooks,
        Scenario("lifecycle", conf_of(settings), "", capacity, settings.fraction),
        log=log,
        alr_max_bytes=None if settings.alr_max == NO_LIMIT else settings.alr_max,
    )


def by_reference(
    program: Program, settings: Settings | None = None, capacity: int | None = None
) -> tuple[Allocator, list[dict[str, object]]]:
    """Runs the reference; returns it, and one row per call."""
    allocator = Allocator(settings, capacity)
    rows: list[dict[str, object]] = []
    waiting = list(program.marks)
    for number, call in enumerate(program.calls):
        while waiting and waiting[0][0] <= number:
            kind = KINDS[waiting.pop(0)[1]]
            if kind == "release":
                allocator.empty_cache()
            else:
                allocator.lifetimes.mark(kind)
        row = _do(allocator, *call)
        for name in ("reserved", "allocated", "requested", "retries", "ooms", "device_allocs", "device_frees"):
            row[name] = getattr(allocator, name)
        rows.append(row)
    return allocator, rows


def _do(allocator: Allocator, op: int, tensor: int, size: int, stream: int) -> dict[str, object]:
    row: dict[str, object] = {"status": OK, "seg": -1, "off": -1, "block": -1, "is_long": False, "level": ""}
    if op == w.ALLOC and size:
        try:
            block = allocator.malloc(tensor, size, stream)
            row |= {"seg": block.segment.number, "off": block.off, "block": block.size}
        except OutOfMemory:
            row["status"] = OOM
        row |= {"is_long": allocator.lifetime == LONG, "level": allocator.path}
    elif op == w.ALLOC or (op in (w.FREE, w.FREE_REQUESTED) and tensor not in allocator.live):
        row["status"] = SKIPPED
    elif op in (w.FREE, w.FREE_REQUESTED):
        allocator.free(tensor)
    elif op == w.EMPTY_CACHE:
        allocator.empty_cache()
    elif op == w.SET_FRACTION:
        allocator.set_fraction(size / 1e9)
    elif op == w.EXTERNAL:
        allocator.external = size
    elif op == w.SET_TOTAL:
        allocator.capacity = size
    return row


LEVELS = ("", "P1", "P2", "P3", "P4", "P5", "oom")


def rows_of(replay: LifecycleReplay) -> list[dict[str, object]]:
    """Returns the same rows of a replay."""
    lifecycle = replay.lifecycle
    assert lifecycle is not None
    columns = {
        name: getattr(replay, name).tolist()
        for name in (
            "seg",
            "off",
            "block",
            "reserved",
            "allocated",
            "requested",
            "retries",
            "ooms",
            "device_allocs",
            "device_frees",
        )
    }
    columns["status"] = [(OK, OOM, SKIPPED)[status] for status in replay.status.tolist()]
    columns["is_long"] = lifecycle.is_long.tolist()
    columns["level"] = [LEVELS[level] if level > 0 else "" for level in lifecycle.level.tolist()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def check(program: Program, settings: Settings | None = None, capacity: int | None = None) -> LifecycleReplay:
    """Runs both and compares every row."""
    replay = replayed(program, settings, capacity)
    _, expected = by_reference(program, settings, capacity)
    for number, (mine, other) in enumerate(zip(rows_of(replay), expected, strict=True)):
        assert mine == other, f"call {number} {program.calls[number]}: {mine} but the reference has {other}"
    return replay
