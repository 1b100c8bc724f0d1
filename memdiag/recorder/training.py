"""Follows the training through PyTorch's global hooks (phase, step, module), without a change to the program.

A step ends with an optimizer step; several in a row count as one (``step_ends.py``: several optimizers). Once the
program ends steps itself, each of its calls is one step. Code compiled by torch.compile does not contain these
hooks: they return at once during tracing. Each thread has its own phase and its own stack of modules.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from .call_sites import calling_line
from .captures import Captures
from .config import AUTOCAST_ENDED
from .forward_graphs import ForwardGraphs
from .guard import report
from .marks import BACKWARD, FORWARD, INITIALISATION, OPTIMIZER, OUTSIDE, PHASE, STEP, Marks
from .naming import Naming
from .other_optimizers import OtherOptimizers
from .placing import Placing
from .step_ends import StepEnds
from .threads import ModuleStack, Thread, Threads

LIMIT = "set_per_process_memory_fraction"
_ASKS = "_has_any_global_hook"  # a compiled module asks for global hooks, and warns that they are called twice
_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)


class Training:
    """The hooks of one process.

    Args:
        torch: The module torch.
        marks: Receives the marks.
        naming: Receives models, optimizers and their tensors.
        stepped: Called after every step with the number of completed steps.

    Attributes:
        placing: Returns the allocator's position at module calls if its events have no times, otherwise None.
    """

    def __init__(self, torch: Any, marks: Marks, naming: Naming, stepped: Callable[[int], None]) -> None:
        self.steps = 0
        self.seconds = 0.0  # spent in phase and step marks and in naming
        self.placing: Placing | None = None
        self._torch = torch
        self._marks = marks
        self._naming = naming
        self._stepped = stepped
        self._local = threading.local()
        self._threads = Threads(torch)
        self.graphs = ForwardGraphs(torch)
        self._passed = False  # a forward or backward has run since the last optimizer step
        self._step_ends = StepEnds()
        self._is_declared = False  # the program ends its steps itself
        self._has_ended = False  # a hook has ended the step that the program has not ended yet
        self._captures = Captures(torch, marks)
        self._others = OtherOptimizers(
            lambda optimizer: self._before_optimizer(optimizer, (), {}),
            lambda optimizer: self._after_optimizer(optimizer, (), {}),
        )
        self._handles: list[Any] = []
        self._replaced: list[Any] = []
        self._off = False

    def install(self) -> None:
        """Installs all hooks that this version of torch has."""
        modules = self._torch.nn.modules.module
        before, after = self._forward_hooks(*_compiling(self._torch))
        self._handles.append(modules.register_module_forward_pre_hook(before))
        try:
            self._handles.append(modules.register_module_forward_hook(after, always_call=True))
        except TypeError:  # before torch 2.2
            self._handles.append(modules.register_module_forward_hook(after))
        if hasattr(modules, _ASKS):
            mine = _only_others(modules, {handle.id for handle in self._handles})
            self._replaced.append((modules, _ASKS, mine, getattr(modules, _ASKS)))
            setattr(modules, _ASKS, mine)
        optimizer = import_module("torch.optim.optimizer")  # not an attribute of torch.optim
        for register, hook in (
            ("register_optimizer_step_pre_hook", self._before_optimizer),
            ("register_optimizer_step_post_hook", self._after_optimizer),
        ):
            if hasattr(optimizer, register):
                self._handles.append(getattr(optimizer, register)(hook))
        self._wrap(self._torch.autograd, "backward", self._enter_backward, self._leave_backward)
        self._wrap(self._torch.autograd, "grad", self._enter_backward, self._leave_backward)
        if hasattr(self._torch, "clear_autocast_cache"):  # called at the end of each outermost region
            self._wrap(self._torch, "clear_autocast_cache", lambda: None, self._autocast_ended)
        self.watch_limit(self._torch.cuda)
        self._captures.install()
        self._mark_phase(INITIALISATION)

    def remove(self) -> None:
        """Removes all hooks."""
        self._off = True
        self._captures.remove()
        self._others.remove()
        for handle in self._handles:
            handle.remove()
        for owner, name, mine, original in self._replaced:
            if getattr(owner, name, None) is mine:
                setattr(owner, name, original)
        self._handles.clear()
        self._replaced.clear()

    def _forward_hooks(self, tracing: Callable[[], bool], compiler: Any) -> Any:  # noqa: C901 - calls would cost more
        """Returns the two module hooks.

        They run for every call of every module, so they are deliberately plain and short. On the CPU, each call that
        they make costs several microseconds more, since PyTorch's profiler sees it.
        """
        local, known, learn, now = self._local, self._naming.modules, self._naming.module, time.time_ns

        def before(module: Any, args: Any) -> None:
            if tracing() or compiler._is_compiling_flag:
                return
            try:
                try:
                    stack = local.stack
                except AttributeError:
                    stack = self._enter_thread()
                if not stack:
                    self._enter_root(module, args)
                try:
                    name = known[id(module)]
                except KeyError:
                    name = learn(module)
                stack += (name,)
                stack.mark((now(), name))
                placing = self.placing
                if placing is not None and len(stack) <= placing.deepest + 1:
                    stack.marks.place(placing())
            except Exception as error:  # noqa: BLE001
                report("module hook", error)

        def after(module: Any, args: Any, output: Any) -> None:  # noqa: ARG001
            if tracing() or compiler._is_compiling_flag:
                return
            try:
                stack = local.stack
            except AttributeError:  # the hooks were installed after this thread entered the module
                return
            try:
                if not stack:
                    return
                del stack[-1]
                stack.mark((now(), stack[-1] if stack else -1))
                placing = self.placing
                if placing is not None and len(stack) <= placing.deepest:
                    stack.marks.place(placing())
                if not stack:
                    self._leave_root()
            except Exception as error:  # noqa: BLE001
                report("module hook", error)

        return before, after

    def _enter_thread(self) -> ModuleStack:
        """Makes the present thread known; returns its stack of modules."""
        thread = self._local.thread = self._threads.enter()
        stack = self._local.stack = ModuleStack(self._marks.of_modules(thread.number))
        return stack

    @property
    def _thread(self) -> Thread:
        """The present thread."""
        if not hasattr(self._local, "thread"):
            self._enter_thread()
        thread: Thread = self._local.thread
        return thread

    def _is_in_backward(self) -> bool:
        """Returns whether the present thread is in backward, where activation checkpointing recomputes a forward."""
        thread = self._thread
        return bool(thread.in_backward) or (thread.is_foreign and self._threads.is_in_backward)

    def _enter_root(self, module: Any, args: Any) -> None:
        if self._is_in_backward():
            return
        began = time.perf_counter()
        mark = self._mark_phase(FORWARD)
        self.graphs.enter(module)
        with self._marks.lock:
            self._naming.root(module, args, mark)
        self.seconds += time.perf_counter() - began

    def _leave_root(self) -> None:
        self._passed = True
        if not self._is_in_backward():
            self._mark_phase(OUTSIDE)

    def _mark_phase(self, phase: int) -> int:
        return self._marks.add(PHASE, phase, self._thread.number)

    def watch_limit(self, home: Any) -> None:
        """Notes the lines that limit the memory of a device; ``home`` is torch.cuda or the like."""
        if hasattr(home, LIMIT):
            self._wrap(home, LIMIT, self._limited, lambda: None)

    def _limited(self) -> None:
        try:
            self._marks.called(LIMIT, calling_line(sys._getframe(2)))
        except Exception as error:  # noqa: BLE001
            report("memory limit", error)

    def _autocast_ended(self) -> None:
        """Marks the moment at which autocast frees its copies of weights."""
        try:
            self._marks.note(AUTOCAST_ENDED)
        except Exception as error:  # noqa: BLE001
            report("autocast", error)

    def _wrap(self, owner: Any, name: str, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._off:
                return original(*args, **kwargs)
            enter()
            try:
                return original(*args, **kwargs)
            finally:
                leave()

        for attribute in (
            "__doc__",
            "__name__",
            "__qualname__",
            "__module__",
            "__annotations__",
            "__defaults__",
            "__kwdefaults__",
        ):
            if attribute in {"__defaults__", "__kwdefaults__"}:
                continue
            setattr(wrapped, attribute, getattr(original, attribute, None))
        wrapped.__wrapped__ = original  # type: ignore[attr-defined]
        setattr(owner, name, wrapped)
        self._replaced.append((owner, name, wrapped, original))

    def _enter_backward(self) -> None:
        is_inner = self._is_in_backward()
        self._threads.begin_backward(self._thread)
        if not is_inner:
            try:
                self._local.stack.clear()  # an exception may have left a forward open
                self._mark_phase(BACKWARD)
                self.graphs.backward()
                self._marks.called("backward", calling_line(sys._getframe(2)))
            except Exception as error:  # noqa: BLE001
                report("backward", error)

    def _leave_backward(self) -> None:
        self._threads.end_backward(self._thread)
        if not self._is_in_backward():
            self._passed = True
            try:
                self._mark_phase(OUTSIDE)
                self._others.look()  # their first step comes later
            except Exception as error:  # noqa: BLE001
                report("backward", error)

    def _before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        try:
            began = time.perf_counter()
            mark = self._mark_phase(OPTIMIZER)
            with self._marks.lock:
                self._naming.gradients(optimizer, mark)
            self.seconds += time.perf_counter() - began
        except Exception as error:  # noqa: BLE001
            report("optimizer hook", error)

    def _after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        try:
            began = time.perf_counter()
            mark = self._mark_phase(OUTSIDE)
            with self._marks.lock:
                self._naming.states(optimizer, mark)
            self.seconds += time.perf_counter() - began
            if self._passed:
                self._passed = False
                # an optimizer per parameter, which steps during backward, does not follow an order of optimizers
                if (self._is_in_backward() or self._step_ends.ends(optimizer)) and not (
                    self._is_declared and self._has_ended
                ):
                    self._has_ended = True
                    self.end_step()
        except Exception as error:  # noqa: BLE001
            report("optimizer hook", error)

    def declare_steps(self) -> None:
        """From now on, each call of ``end_declared_step`` is one step, with any number of optimizer steps."""
        self._is_declared = True

    def end_declared_step(self) -> None:
        """Ends a step for the program, unless an optimizer step has ended it already."""
        self._is_declared = True
        if not self._has_ended:
            self.end_step()
        self._has_ended = False

    def end_step(self) -> None:
        """Marks the end of a step."""
        self._passed = False
        self.steps += 1
        self._marks.add(STEP, self.steps)
        self._marks.trim(self._thread.number)
        if self.placing is not None:
            self.placing.stepped()
        self._stepped(self.steps)


def _compiling(torch: Any) -> tuple[Callable[[], bool], Any]:
    """Returns how to detect that a module is being compiled: a function that says it, and an owner of a flag.

    torch.compile replaces the call of the function by True, and so leaves the rest of a hook out. ``is_compiling`` also
    reads the flag, but takes two calls more.
    """
    compiler: Any = getattr(torch, "compiler", None)
    if hasattr(compiler, "is_dynamo_compiling") and hasattr(compiler, "_is_compiling_flag"):  # torch 2.3
        return compiler.is_dynamo_compiling, compiler
    homes = (compiler, getattr(torch, "_utils", None))  # torch._utils before torch 2.2
    is_compiling = next((found for home in homes if (found := getattr(home, "is_compiling", None))), lambda: False)
    return is_compiling, SimpleNamespace(_is_compiling_flag=False)


def _only_others(modules: Any, own: set[int]) -> Callable[[], bool]:
    """Returns a function that says whether there are global module hooks besides those with the identifiers ``own``."""

    def has_any() -> bool:
        return any(key not in own for name in _GLOBAL_HOOKS for key in getattr(modules, name, ()))

    return has_any
