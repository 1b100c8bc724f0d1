"""Runs a program on the CPU and counts its live tensors: live_storages.py [--foreach] RESULT.json SCRIPT ARGUMENTS...

memdiag takes no part in it. PyTorch tells each fact itself: its profiler has each allocation and free, a dispatch mode
sees the result of each operator, and hooks tell what autograd saves, what modules and optimizers own, and what a model
is called with. Memory that never becomes the result of an operator is the scratch memory of a kernel. With --foreach,
optimizers update all parameters together, which is the default on a GPU or NPU and needs more temporary tensors.

RESULT.json has the largest sum of live bytes, and its parts at that moment, with scratch memory and without. Each
storage is of the first kind that fits:

* parameters: a module or an optimizer has it as a parameter or buffer;
* optimizer states: an optimizer has it in its state;
* gradients: it becomes the ``grad`` of a parameter;
* input batches: an argument of a module that no other module calls, and not the result of one;
* activations: autograd saves it, or it is made in forward and is live when another phase begins; forward is the call of
  a module that no other module calls, together with the loss that follows it;
* temporary tensors: all others that are freed in the phase in which they were made;
* scratch memory: never the result of an operator;
* other tensors: the rest.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

KINDS = ("parameters", "optimizer states", "gradients", "input batches", "activations")
MULTIPLICATIONS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}
RESULT, GIVEN = "result of an operator", "argument of a module"
TEMPORARY, SCRATCH, OTHER = "temporary tensors", "scratch memory", "other tensors"


class Allocation:
    """One allocation: when it was made and freed (in ns), its size, and what is known about it."""

    __slots__ = ("born", "died", "facts", "size")

    def __init__(self, born: int, size: int) -> None:
        self.born, self.size = born, size
        self.died: int | None = None
        self.facts: set[str] = set()


class LiveStorages(TorchDispatchMode):
    """Notes what PyTorch says about the memory of tensors while it is active.

    It is not active in backward: PyTorch adds gradients in place only if no dispatch mode is. There, the memory of
    which nothing else is known is of temporary tensors if it is live when the operator that allocated it ends.

    Attributes:
        seen: For each address, the facts about the storage that was there, each with its moment (in ns).
        phases: The moment at which each phase began, and its name.
        operators: Each operator that the profiler saw, with its phase.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, list[tuple[int, str]]] = {}
        self.phases: list[tuple[int, str]] = [(0, "outside")]
        self.operators: set[tuple[str, str]] = set()
        self.depth = 0
        self.in_backward = 0
        self.has_optimizer = False
        self.trained: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        self.hooks: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = function(*args, **(kwargs or {}))
        self.mark(RESULT, tree_leaves(result))
        return result

    def mark(self, fact: str, values: Iterable[Any]) -> None:
        """Notes a fact about the storages of all tensors among the values."""
        for each in values:
            if isinstance(each, torch.Tensor) and each.layout is torch.strided and not each.is_meta:
                start = each.data_ptr() - each.storage_offset() * each.element_size()
                self.seen.setdefault(start, []).append((time.time_ns(), fact))

    # ------------------------------------------------------------------------------------------------------ phases

    def begin(self, phase: str) -> None:
        if phase != self.phases[-1][1]:
            self.phases.append((time.time_ns(), phase))

    def phase_at(self, moment: int) -> int:
        """The index in ``phases`` of the phase at a moment."""
        return bisect_right(self.phases, (moment, "~")) - 1

    def before_backward(self) -> None:
        """Begins backward; the loss, between the last module and backward, is a part of forward."""
        if self.phases[-1][1] == "outside" and self.phases[-2:][0][1] == "forward":
            self.phases.pop()
        self.begin("backward")

    def before_module(self, module: torch.nn.Module, inputs: Any) -> None:
        own = [*module._parameters.values(), *module._buffers.values()]  # noqa: SLF001 - without those of its children
        self.mark("parameters", own)
        self.trained.update({id(each): each for each in own if each is not None and each.requires_grad})
        if not self.depth and not self.in_backward:  # backward may compute a forward again
            self.begin("forward")
            given = [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]
            self.mark(GIVEN, [each for each in given if not each.requires_grad])
        self.depth += 1

    def after_module(self, *_: Any) -> None:
        self.depth -= 1
        if not self.depth and not self.in_backward:
            self.begin("outside")

    def before_step(self, optimizer: Any, *_: Any) -> None:
        owned = [each for group in optimizer.param_groups for each in group["params"]]
        self.mark("parameters", owned)
        self.mark("gradients", [each.grad for each in owned])
        self.has_optimizer = True
        self.begin("optimizer")

    def after_step(self, optimizer: Any, *_: Any) -> None:
        self.mark("optimizer states", tree_leaves(list(optimizer.state.values())))
        self.begin("outside")

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns what autograd stores: not the tensor, because a result in its own graph would keep that alive."""
        self.mark("activations", [tensor])
        with _disable_current_modes():
            return tensor.detach()

    def __enter__(self) -> Any:
        engine = torch.autograd.graph._engine_run_backward  # noqa: SLF001 - each way into backward goes through it

        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self.in_backward:
                self.before_backward()
            self.in_backward += 1
            try:
                with _disable_current_modes():
                    return engine(*args, **kwargs)
            finally:
                self.in_backward -= 1
                self.mark("gradients", [each.grad for each in self.trained.values() if each.is_leaf])
                if not self.in_backward:
                    self.begin("outside")

        torch.autograd._engine_run_backward = backward  # type: ignore[attr-defined]  # noqa: SLF001
        self.hooks = [
            modules.register_module_forward_pre_hook(self.before_module),
            modules.register_module_forward_hook(self.after_module, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
        ]
        self.saving = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor)
        self.saving.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.saving.__exit__(*error)
        for each in self.hooks:
            each.remove()
        torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward  # type: ignore[attr-defined]  # noqa: SLF001

    # ------------------------------------------------------------------------------------------------------ answers

    def kind(self, one: Allocation) -> str:
        """What an allocation is, from all that became known about it during the run."""
        born = self.phase_at(one.born)
        if GIVEN in one.facts and self.phases[born][1] == "outside":
            one.facts.add("input batches")
        if not one.facts:
            return SCRATCH
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

    def peak(self, counted: Sequence[Allocation]) -> dict[str, int]:
        """Returns the bytes of each kind at the moment with the most live bytes."""
        moments = [(each.born, 1, each.size) for each in counted]
        moments += [(each.died, 0, -each.size) for each in counted if each.died is not None]
        now = most = at = 0
        for moment, _, size in sorted(moments):
            now += size
            if now > most:
                most, at = now, moment
        parts: Counter[str] = Counter()
        for each in counted:
            if each.born <= at and (each.died is None or each.died > at):
                parts[self.kind(each)] += each.size
        return {kind: parts[kind] for kind in (*KINDS, TEMPORARY, SCRATCH, OTHER)}

    def changes(self, profiled: Any) -> Iterator[tuple[int, int, int, int]]:
        """Yields moment (ns), address, size and end of the operator (ns; 0: none) of each allocation.

        Frees have a negative size. It also notes the operators.
        """
        waiting = [(event, 0) for event in profiled.profiler.kineto_results.experimental_event_tree()]
        while waiting:
            event, ends = waiting.pop()
            if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
                yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size, ends
            elif event.tag == _EventType.TorchOp:
                ends = event.end_time_ns
                self.operators.add((event.name, self.phases[self.phase_at(event.start_time_ns)][1]))
            waiting += [(each, ends) for each in event.children]


def main() -> None:
    """Runs the program and writes its peak."""
    is_foreach = sys.argv[1] == "--foreach"
    result, script, *arguments = sys.argv[1 + is_foreach :]
    if is_foreach:
        optimizers._get_foreach_kernels_supported_devices = lambda: ["cpu"]  # type: ignore[attr-defined]  # noqa: SLF001
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    counted = LiveStorages()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        try:
            with counted:
                runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
    made = counted.allocations(profiled)
    multiplied = {pair for pair in counted.operators if pair[0] in MULTIPLICATIONS}
    found = {
        "all": counted.peak(made),
        "tensors": counted.peak([each for each in made if each.facts]),
        "threads": sorted({"backward" if phase == "backward" else "forward" for _, phase in multiplied}),
        "has_optimizer": counted.has_optimizer,
        "convolves": any("convolution" in name for name, _ in counted.operators),
    }
    Path(result).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
