"""Notes what PyTorch says about the memory of tensors while a program runs on the CPU, for live_storages.py."""

from __future__ import annotations

import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import cpu_as_gpu
import torch
import torch.distributed as dist
from torch._C import _functorch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)
from torch.utils._pytree import tree_leaves

COLLECTIVE = "buffers of collectives"
RESULT, GIVEN, ON_GPU = "result of an operator", "argument of a module", "would be on a GPU"
HOST = "stays on the host"
OWNED = ("parameters", "gradients", "optimizer states", GIVEN)  # on a GPU, if the program uses one
COLLECTIVES = (  # not those that work in place
    *("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single"),
    "all_to_all_single",
)


def plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the tensors with memory below one of torch.func, a DTensor or another wrapper."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    if is_traceable_wrapper_subclass(tensor):
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        yield from (one for part in parts if isinstance(part, torch.Tensor) for one in plain(part))
    elif tensor.layout is torch.strided and not tensor.is_meta and not isinstance(tensor, FakeTensor):
        yield tensor


def start_of(tensor: torch.Tensor) -> int:
    """The address of the storage of a tensor."""
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


class StorageNotes(TorchDispatchMode):
    """Notes what PyTorch says about the memory of tensors while it is active.

    It is not active in backward: PyTorch adds gradients in place only if no dispatch mode is. There, the memory of
    which nothing else is known is of temporary tensors if it is live when the operator that allocated it ends.

    Attributes:
        seen: For each address, the facts about the storage that was there, each with its moment (in ns).
        phases: The moment at which each phase began, and its name.
        operators: Each operator that the profiler saw, with its phase.
        on_gpu: Addresses of tensors that would be on a GPU.
        gathers: Whether collectives of COLLECTIVES ran.
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
        self.on_gpu: set[int] = set()
        self.gathers = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # the operators that it calls come here
        result = function(*args, **(kwargs or {}))
        self.mark(RESULT, tree_leaves(result))
        if self.phases[-1][1] == "outside" and self.uses_gpu((args, kwargs)):
            self.place(result)
        return result

    def place(self, result: Any) -> None:
        """Notes that tensors would be on a GPU."""
        self.on_gpu.update(self.mark(ON_GPU, tree_leaves(result)))

    def uses_gpu(self, given: Any) -> bool:
        """Returns whether one of the tensors would be on a GPU, or another one was at its address."""
        with _disable_current_modes():
            given = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]
            return any(start_of(one) in self.on_gpu for each in given for one in plain(each))

    def mark(self, fact: str, values: Iterable[Any]) -> list[int]:
        """Notes a fact about the storages of all tensors among the values; returns their addresses."""
        with _disable_current_modes():
            tensors = [one for value in values if isinstance(value, torch.Tensor) for one in plain(value)]
            starts = list(map(start_of, tensors))
            now = time.time_ns()
            for start in starts:
                self.seen.setdefault(start, []).append((now, fact))
        if fact in OWNED:
            self.on_gpu.update(starts)
        return starts

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
        if not self.depth:  # also those of children that are never called themselves
            own = [*module.parameters(), *module.buffers()]
        self.mark("parameters", own)
        self.trained.update({id(each): each for each in own if each is not None and each.requires_grad})
        if not self.depth and not self.in_backward:  # backward may compute a forward again
            self.begin("forward")
            given = [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]
            self.mark(GIVEN, [each for each in given if not each.requires_grad])
        self.depth += 1

    def after_module(self, module: torch.nn.Module, *_: Any) -> None:
        self.mark("parameters", module._parameters.values())  # noqa: SLF001 - those that a hook of its own gathered
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
        for owner, state in optimizer.state.items():
            counters = [each for each in tree_leaves(state) if isinstance(each, torch.Tensor) and not each.dim()]
            self.mark(
                HOST, counters if isinstance(owner, torch.Tensor) and owner.dim() else []
            )  # such as the steps of Adam
        self.begin("outside")

    def marking(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a collective that marks the tensors that it gets."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.gathers = True
            self.mark(COLLECTIVE, tree_leaves((args, kwargs)))
            return collective(*args, **kwargs)

        return call

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns what autograd stores: not the tensor, because a result in its own graph would keep that alive."""
        if TracingContext.try_get():  # a program is compiled
            return tensor
        self.mark("activations", [tensor])
        with _disable_current_modes():
            return tensor.detach()

    @contextmanager
    def pause_saving(self, _: str) -> Iterator[None]:
        """Switches the hook of ``keep`` off where PyTorch refuses hooks for what autograd saves (torch.func)."""
        self.saving.__exit__()
        try:
            yield
        finally:
            self.saving.__enter__()

    def compile(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``torch.compile`` for code that runs without modes and hooks of modules: it cannot contain them."""

        def call(compiled: Callable[..., Any], module: torch.nn.Module | None, *args: Any, **kwargs: Any) -> Any:
            if module is not None:
                self.mark("parameters", [*module.parameters(), *module.buffers()])
                self.trained.update({id(each): each for each in module.parameters() if each.requires_grad})
            tables = (modules._global_forward_pre_hooks, modules._global_forward_hooks)  # noqa: SLF001
            kept = [dict(table) for table in tables]
            for table in tables:
                table.clear()
            try:
                with _disable_current_modes(), cpu_as_gpu.paused():
                    return compiled(*args, **kwargs)
            finally:
                for table, hooks in zip(tables, kept, strict=True):
                    table.update(hooks)

        def compile_with(model: Any = None, **options: Any) -> Any:
            if model is None:
                return lambda later: compile_with(later, **options)
            made = make(model, **options)
            if not isinstance(made, torch.nn.Module):
                return partial(call, made, None)
            made.forward = partial(call, made.forward, model)
            return made

        return compile_with

    def __enter__(self) -> Any:
        engine = torch.autograd.graph._engine_run_backward  # noqa: SLF001 - each way into backward goes through it

        def backward(*args: Any, **kwargs: Any) -> Any:
            if TracingContext.try_get():
                return engine(*args, **kwargs)
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
        torch.compile = self.compile(torch.compile)  # type: ignore[assignment]
        for name in COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, self.marking(getattr(dist, name)))
        self.hooks = [
            modules.register_module_forward_pre_hook(self.before_module),
            modules.register_module_forward_hook(self.after_module, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
        ]
        torch.autograd.graph.disable_saved_tensors_hooks = self.pause_saving  # type: ignore[assignment]
        self.saving = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor)
        self.saving.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.saving.__exit__(*error)
        for each in self.hooks:
            each.remove()
        torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward  # type: ignore[attr-defined]  # noqa: SLF001
