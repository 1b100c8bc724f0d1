"""Handwritten trainings, and an independent checker of their replay."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies.static_plan.plan import Planned
from memdiag.allocator.policies.static_plan.policy import STATIC_PLAN
from memdiag.allocator.policies.static_plan.replay import PlannedReplay, make_plan, replay_planned
from memdiag.allocator.result import OK
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.units import MIB


@dataclass
class Program:
    """Calls (op, tensor, size, stream, site), and the step of each."""

    calls: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    step: int = -1
    num: int = 0
    done: str = "recorded"

    def alloc(self, size: int, site: int = 0, stream: int = 0) -> int:
        self._call(w.ALLOC, self.num, size, stream, site)
        self.num += 1
        return self.num - 1

    def free(self, *tensors: int) -> None:
        for tensor in tensors:
            self._call(w.FREE, tensor)

    def call(self, op: int, tensor: int = -1, stream: int = 0) -> None:
        self._call(op, tensor, 0, stream)

    def begin(self) -> None:
        self.step += 1

    def _call(self, op: int, tensor: int, size: int = 0, stream: int = 0, site: int = -1) -> None:
        self.calls.append((op, tensor, size, stream, site))
        self.steps.append(self.step)

    def workload(self) -> Workload:
        op, tensor, size, stream, _ = (np.array([call[i] for call in self.calls], np.int64) for i in range(5))
        n = len(self.calls)
        return Workload(
            op=op.astype(np.int8),
            tensor=tensor.astype(np.int32),
            size=size,
            stream=stream.astype(np.int32),
            pool=np.full(n, -1, np.int32),
            row=np.arange(n),
            num_rows=n,
            num_tensors=self.num,
            streams=np.arange(1 + int(stream.max(initial=0)), dtype=np.uint64),
            done=self.done,
        )

    def plan(self) -> Planned:
        return make_plan(self.workload(), np.array([call[4] for call in self.calls]), np.array(self.steps), "marks")

    def replay(self, capacity: int | None = None) -> PlannedReplay:
        return replay_planned(self.plan(), STATIC_PLAN, Scenario("plan", capacity_bytes=capacity), log=True)


def training(
    lengths: list[int], *, layers: int = 4, extra: dict[int, int] | None = None, keeps_output: bool = False
) -> Program:
    """Returns weights, then steps.

    A layer saves an activation, the backward allocates gradients, and the first optimizer step allocates states.

    Args:
        lengths: Batch size of each step, in MiB of an activation.
        layers: Number of layers.
        extra: Additional bytes that a step requests after the forward, until it ends.
        keeps_output: Whether the last output lives until there is a new one.
    """
    program = Program()
    for _ in range(layers):
        program.alloc(7 * MIB, 1)
    output = -1
    for number, length in enumerate(lengths):
        program.begin()
        kept = []
        for layer in range(layers):
            short = program.alloc(3 * length * MIB, 2)
            kept.append(program.alloc(length * MIB + 512 * layer, 3))
            program.free(short)
        new = program.alloc(9 * length * MIB, 4)
        if output >= 0 and keeps_output:
            program.free(output)
        output = new
        more = [program.alloc(extra[number], 9)] if extra and number in extra else []
        gradients = []
        for each in reversed(kept):
            work = program.alloc(2 * length * MIB, -1)
            gradients.append(program.alloc(7 * MIB, -1))
            program.free(work, each)
        if number == 0:
            for _ in range(2 * layers):
                program.alloc(7 * MIB, 6)
        program.free(*more, *gradients)
        if not keeps_output:
            program.free(output)
    return program


def problems(replay: PlannedReplay) -> list[str]:
    """Returns the errors of a replay, from its log and curves alone."""
    log = replay.log
    assert log is not None
    found: list[str] = []
    held: dict[int, list[tuple[int, int]]] = {}
    live: list[tuple[int, int]] = []  # address and end
    where: dict[int, tuple[int, int]] = {}
    reserved, active = 0, 0
    at = 0
    columns = [log[name].tolist() for name in ("call", "action", "seg", "off", "size", "tensor")]
    entries = list(zip(*columns, strict=True))
    for call in range(-1, len(replay.status)):
        while at < len(entries) and entries[at][0] == call:
            _, action, seg, off, size, tensor = entries[at]
            at += 1
            address = int(replay.bases[seg]) + off if seg >= 0 else -1
            if action in (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP):
                held.setdefault(seg, []).append((off, off + size))
                reserved += size
            elif action in (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP):
                reserved -= size
                if any(a < address + size and address < b for a, b in live):
                    found.append(f"call {call}: memory was given back under a tensor")
            elif action == schema.ALLOC:
                end = address + -(-size // 512) * 512
                place = bisect_left(live, (address, 0))
                if any(a < end and address < b for a, b in live[max(place - 1, 0) : place + 1]):
                    found.append(f"call {call}: tensor {tensor} lies on another")
                if seg not in held:
                    found.append(f"call {call}: tensor {tensor} lies nowhere")
                insort(live, (address, end))
                where[tensor] = (address, end)
                active += end - address
            elif action == schema.FREE_COMPLETED:
                live.remove(where[tensor])
                active -= where[tensor][1] - where[tensor][0]
        if call >= 0 and (
            int(replay.reserved[call]) != reserved or int(replay.active[call]) < active or reserved < active
        ):
            found.append(
                f"call {call}: {replay.reserved[call]} reserved, {replay.active[call]} active; the log says "
                f"{reserved}, {active}"
            )
    return found


def load(workload: Workload) -> int:
    """Returns the peak of live bytes, in units of 512."""
    live, most, size = 0, 0, dict[int, int]()
    for op, tensor, asked in zip(workload.op.tolist(), workload.tensor.tolist(), workload.size.tolist(), strict=True):
        if op == w.ALLOC:
            size[tensor] = -(-asked // 512) * 512
            live += size[tensor]
        elif op in (w.FREE, w.FREE_COMPLETED):
            live -= size.pop(tensor, 0)
        most = max(most, live)
    return most


def all_served(replay: PlannedReplay, workload: Workload) -> bool:
    return bool((replay.status[workload.op == w.ALLOC] == OK).all())
