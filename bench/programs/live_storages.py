"""Runs a program on the CPU and counts its live tensors: live_storages.py [OPTIONS] FOLDER SCRIPT ARGUMENTS...

memdiag takes no part in it. PyTorch tells each fact itself: its profiler has each allocation and free, a dispatch mode
sees the result of each operator, and hooks tell what autograd saves, what modules and optimizers own, and what a model
is called with. Memory that never becomes the result of an operator is the scratch memory of a kernel. With --foreach,
optimizers update all parameters together, which is the default on a GPU or NPU and needs more temporary tensors. With
--gpus COUNT, a program for GPUs runs on the CPU (cpu_as_gpu.py).

Each process of torchrun and each that the program spawns writes a file into FOLDER. It has the largest sum of live
bytes, and its parts at that moment: once with scratch memory, and once of the tensors alone, in blocks as of a GPU's
allocator. Each storage is of the first kind that fits:

* parameters: a module or an optimizer has it as a parameter or buffer;
* optimizer states: an optimizer has it in its state;
* gradients: it becomes the ``grad`` of a parameter;
* buffers of collectives: a collective got it or made it;
* input batches: an argument of a module that no other module calls, and not the result of one;
* activations: autograd saves it, or it is made in forward and is live when another phase begins; forward is the call of
  a module that no other module calls, together with the loss that follows it;
* temporary tensors: all others that are freed in the phase in which they were made;
* scratch memory: never the result of an operator;
* other tensors: the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.popen_spawn_posix import Popen
from pathlib import Path
from typing import Any

import cpu_as_gpu
from storage_notes import COLLECTIVE, GIVEN, HOST, RESULT, StorageNotes
from torch._C._profiler import _EventType
from torch.optim import optimizer as optimizers
from torch.profiler import ProfilerActivity, profile

KINDS = ("parameters", "optimizer states", "gradients", COLLECTIVE, "input batches", "activations")
TEMPORARY, SCRATCH, OTHER = "temporary tensors", "scratch memory", "other tensors"
MULTIPLICATIONS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}
FUNCTIONAL = "_c10d_functional::"  # operators of collectives, which make their results
BLOCK = 512  # bytes: kMinBlockSize of CUDACachingAllocator.cpp and NPUCachingAllocator.cpp


class Allocation:
    """One allocation: when it was made and freed (in ns), its size, and what is known about it."""

    __slots__ = ("born", "died", "facts", "size")

    def __init__(self, born: int, size: int) -> None:
        self.born, self.size = born, size
        self.died: int | None = None
        self.facts: set[str] = set()


class LiveStorages(StorageNotes):
    """The allocations of a program, and what they are."""

    def kind(self, one: Allocation) -> str:
        """What an allocation is, from all that became known about it during the run."""
        born = self.phase_at(one.born)
        if GIVEN in one.facts and self.phases[born][1] == "outside":
            one.facts.add("input batches")
        if not one.facts:
            return SCRATCH
        is_passing = one.died is not None and self.phases[born][1] in ("forward", "backward")
        if "parameters" in one.facts and is_passing and self.gathers:
            return COLLECTIVE  # gathered from its shards
        for kind in KINDS:
            if kind in one.facts:
                return kind
        if one.died is not None and self.phase_at(one.died) == born:
            return TEMPORARY
        return "activations" if self.phases[born][1] == "forward" else OTHER

    def allocations(self, profiled: Any) -> list[Allocation]:
        """Returns the allocations that the profiler saw, each with the facts about its storage."""
        live: dict[int, Allocation] = {}
        found = []
        for moment, address, size, ends in sorted(self.changes(profiled)):
            if size > 0:
                live[address] = Allocation(moment, size)
                found.append((address, live[address], ends))
            elif address in live:
                live.pop(address).died = moment
        for address, one, ends in found:
            outlives = ends > 0 and (one.died is None or one.died > ends)
            if outlives and self.phases[self.phase_at(one.born)][1] == "backward":
                self.seen.setdefault(address, []).append((one.born, RESULT))
        for facts in self.seen.values():
            facts.sort()
        for address, one, _ in found:
            facts = self.seen.get(address, [])
            last = len(facts) if one.died is None else bisect_right(facts, (one.died, "~"))
            one.facts = {fact for _, fact in facts[bisect_right(facts, (one.born, "")) : last]}
        return [one for _, one, _ in found]

    def peak(self, counted: Sequence[Allocation], block: int = 1) -> dict[str, int]:
        """Returns the bytes of each kind at the moment with the most live bytes.

        Args:
            counted: The allocations.
            block: Each takes a multiple of so many bytes.
        """
        sizes = {id(each): -(-each.size // block) * block for each in counted}
        moments = [(each.born, 1, sizes[id(each)]) for each in counted]
        moments += [(each.died, 0, -sizes[id(each)]) for each in counted if each.died is not None]
        now = most = at = 0
        for moment, _, size in sorted(moments):
            now += size
            if now > most:
                most, at = now, moment
        parts: Counter[str] = Counter()
        for each in counted:
            if each.born <= at and (each.died is None or each.died > at):
                parts[self.kind(each)] += sizes[id(each)]
        return {kind: parts[kind] for kind in (*KINDS, TEMPORARY, SCRATCH, OTHER)}

    def is_tensor(self, one: Allocation, *, is_gpu: bool) -> bool:
        """Whether an allocation is of a tensor; for a program for GPUs, without those that would stay on the host."""
        is_outside = self.phases[self.phase_at(one.born)][1] == "outside"
        if is_gpu and HOST in one.facts:
            return False
        return bool(one.facts - {RESULT} if is_gpu and is_outside else one.facts)

    def found(self, profiled: Any, *, is_gpu: bool) -> dict[str, Any]:
        """Returns what a process writes into its file."""
        made = self.allocations(profiled)
        multiplied = {pair for pair in self.operators if pair[0] in MULTIPLICATIONS}
        return {
            "all": self.peak(made),
            "tensors": self.peak([each for each in made if self.is_tensor(each, is_gpu=is_gpu)], BLOCK),
            "threads": sorted({"backward" if phase == "backward" else "forward" for _, phase in multiplied}),
            "has_optimizer": self.has_optimizer,
            "convolves": any("convolution" in name for name, _ in self.operators),
        }

    def changes(self, profiled: Any) -> Iterator[tuple[int, int, int, int]]:
        """Yields moment (ns), address, size and end of the operator (ns; 0: none) of each allocation.

        Frees have a negative size. It also notes the operators.
        """
        waiting = [(event, 0, False, True) for event in profiled.profiler.kineto_results.experimental_event_tree()]
        while waiting:
            event, ends, is_collective, is_kernel = waiting.pop()
            if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
                facts = [COLLECTIVE] if is_collective else [] if is_kernel else [RESULT]
                if event.extra_fields.alloc_size > 0 and facts:
                    self.seen.setdefault(event.extra_fields.ptr, []).append((event.start_time_ns, facts[0]))
                yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size, ends
            elif event.tag == _EventType.TorchOp:
                ends = event.end_time_ns
                is_kernel = "::" in event.name  # compiled code and Python functions of autograd allocate tensors
                is_collective = is_collective or event.name.startswith(FUNCTIONAL)
                self.operators.add((event.name, self.phases[self.phase_at(event.start_time_ns)][1]))
            waiting += [(each, ends, is_collective, is_kernel) for each in event.children]


@dataclass(frozen=True)
class Options:
    """What the command asks for.

    Attributes:
        folder: Where each process writes its file.
        is_foreach: Whether optimizers update all parameters together.
        gpus: How many GPUs the program sees; 0: none.
    """

    folder: Path
    is_foreach: bool
    gpus: int

    def run(self, program: Callable[[], Any]) -> None:
        """Runs the program, or its part in this process, and writes its peak."""
        if self.is_foreach:
            optimizers._get_foreach_kernels_supported_devices = lambda: ["cpu"]  # type: ignore[attr-defined]  # noqa: SLF001
        if self.gpus:
            cpu_as_gpu.imitate(self.gpus)
        launch = Popen._launch  # type: ignore[attr-defined]  # noqa: SLF001

        def launch_counted(started: Any, process: Any) -> None:
            process._target = InChild(self, process._target)  # noqa: SLF001
            launch(started, process)

        Popen._launch = launch_counted  # type: ignore[attr-defined]  # noqa: SLF001
        counted = LiveStorages()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            try:
                with cpu_as_gpu.OnCPU(counted.place) if self.gpus else nullcontext(), counted:
                    program()
            except SystemExit as end:
                if end.code:
                    raise
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"{os.getpid()}.json"
        file.write_text(json.dumps(counted.found(profiled, is_gpu=self.gpus > 0), indent=1) + "\n", encoding="utf-8")
        if cpu_as_gpu.GROUPS:
            sys.stdout.flush()
            os._exit(0)  # without their destructors


@dataclass(frozen=True)
class InChild:
    """The function of a spawned process, with its count."""

    options: Options
    target: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.options.run(lambda: self.target(*args, **kwargs))


def main() -> None:
    """Runs the program and writes its peak."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--foreach", action="store_true", help="optimizers update all parameters together")
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs the program sees on the CPU")
    parser.add_argument("folder", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    sys.argv = [given.script, *given.arguments]
    sys.path.append(sys.path[0])  # where spawned processes find this module
    sys.path[0] = str(Path(given.script).parent)
    options = Options(given.folder.absolute(), given.foreach, given.gpus)
    options.run(lambda: runpy.run_path(given.script, run_name="__main__"))


if __name__ == "__main__":
    import live_storages  # so that spawned processes find its classes

    live_storages.main()
