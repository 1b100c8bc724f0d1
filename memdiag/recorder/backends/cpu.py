"""CPU: allocations of PyTorch's CPU allocator, from the memory events of PyTorch's own profiler.

The profiler runs with everything else turned off: no operators or annotations are recorded (its scope is one that nothing enters),
only memory events, and Python calls for their stacks. What it cannot see: memory that is not PyTorch's (NumPy, the interpreter,
oneDNN's scratch), what other threads of the program allocate, and what happens while the program runs a profiler itself. Other threads
also free what this one has allocated: a gloo thread holds the buffers of its collective, and often the last reference to them. Such a
block counts as freed when the next allocation takes a byte of it, which is the latest it can have been.

An operator or annotation that a profiler has seen begin must not end while the next one runs: PyTorch writes its end to where its
beginning was kept, which has been freed with the first profiler. Ours sees none; after one of the program's own we wait.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ..compiling import Compiling
from ..guard import contained, warn
from ..imports import Imports
from ..marks import NOWHERE, Position
from .live_blocks import LiveBlocks

_HARVEST_SECONDS = 2.0  # how often the profiler's events are taken over: they take 100 bytes and more each
_Frames = list[dict[str, Any]]


class Cpu:
    """The history of the CPU allocator."""

    name = "cpu"
    has_times = True

    def __init__(self) -> None:
        self.is_active = False
        self.unknown_frees = 0  # of what was there before
        self.unseen_frees = 0  # known only since the memory was handed out again
        self.paused_seconds = 0.0
        self._torch: Any = None
        self._running = False
        self._entries: Any = deque()
        self._live = LiveBlocks()
        self._allocs = 0
        self._frees = 0
        self._last = 0.0
        self._frames: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._replaced: list[tuple[str, Any, Any]] = []
        self._paused_at: float | None = None
        self._theirs = False  # the program runs a profiler itself
        self._annotations: list[Any] = []  # weakly: those that it may have seen begin
        self._stacks = True
        self._reasons = 0  # not to record stacks
        self._compiled = False  # since the last step
        self._thread = 0  # that is recorded
        light, full = (contained(lambda change=change: self._lighten(change)) for change in (1, -1))
        self._imports = Imports(light, full)
        self._compiling = Compiling(contained(self._compile), full)
        self.is_busy = False  # taking over events: a snapshot now would miss them
        self.when_idle: Callable[[], None] = lambda: None

    def is_alone(self, torch: Any) -> bool:
        """Whether no accelerator is to be expected; asked without initialising one."""
        if "torch_npu" in sys.modules:
            return False
        if torch.version.cuda is None and torch.version.hip is None:
            return True
        if os.environ.get("MEMDIAG_PHANTOM") or any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
            return os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        return True

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """The CPU is there from the start."""
        self._torch = torch
        started(self)

    def start(self, max_events: int) -> None:
        """Starts recording."""
        self._entries = deque(maxlen=max_events)
        self.is_active = True
        self._thread = threading.get_ident()
        self._give_way()
        self._imports.install()
        self._compiling.install()
        self._run()

    def stop(self) -> None:
        """Stops recording."""
        self._imports.remove()
        self._compiling.remove()
        self._pause()
        self.is_active = False
        profiler = self._torch.autograd.profiler
        for name, mine, original in self._replaced:
            if getattr(profiler, name, None) is mine:
                setattr(profiler, name, original)
        self._replaced = []

    def position(self) -> Position:
        """The profiler's events have times: nothing is counted."""
        return NOWHERE

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """The CPU allocator tells nobody."""

    def facts(self) -> dict[str, Any]:
        """Returns what could not be seen."""
        return {
            "capacity_bytes": {},
            "counts": {0: {"allocs": self._allocs, "frees": self._frees, "retries": -1, "ooms": -1}},
            "fraction": None,
            "settings": {},
            "unknown_frees": self.unknown_frees,
            "unseen_frees": self.unseen_frees,
            "paused_seconds": self.paused_seconds,
        }

    # --------------------------------------------------------------------------------------------------------- profiler

    def _run(self) -> None:
        from torch._C._autograd import _enable_profiler, _prepare_profiler
        from torch._C._profiler import ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
        from torch.autograd import ProfilerActivity

        level = os.environ.get("KINETO_LOG_LEVEL")
        os.environ["KINETO_LOG_LEVEL"] = "99"  # or every start would print a line
        try:
            # Stacks come from Python's one place for a profile function: where the program uses it (cProfile), it stays the program's.
            stacks = self._stacks and sys.getprofile() is None
            config = ProfilerConfig(ProfilerState.KINETO, False, True, stacks, False, False, _ExperimentalConfig())
            _prepare_profiler(config, {ProfilerActivity.CPU})
            _enable_profiler(config, {ProfilerActivity.CPU}, {RecordScope.STATIC_RUNTIME_MODEL})
        finally:
            if level is None:
                del os.environ["KINETO_LOG_LEVEL"]
            else:
                os.environ["KINETO_LOG_LEVEL"] = level
        self._running = True
        self._last = time.monotonic()

    def _pause(self) -> None:
        if not self._running:
            return
        from torch._C._autograd import _disable_profiler

        self._running = False
        self.is_busy = True
        theirs = sys.getprofile()
        try:
            done = _disable_profiler()
            if hasattr(theirs, "enable"):  # a cProfile begun since: our stop has taken its place away
                theirs.enable()  # type: ignore[union-attr]
            self._take(done.experimental_event_tree())
        finally:
            self.is_busy = False

    def _lighten(self, change: int) -> None:
        """Records allocations without their Python stacks as long as something large is imported or compiled."""
        if threading.get_ident() != self._thread:  # another thread cannot stop this one's profiler
            return
        self._reasons = max(0, self._reasons + change)
        self._compiling.install()
        self._adjust()

    def _compile(self) -> None:
        """Something is compiled now; where there are gradients its backward will be, in the next backward pass."""
        self._compiled = self._compiled or bool(self._torch.is_grad_enabled())
        self._lighten(1)

    def _adjust(self) -> None:
        wanted = not self._reasons and not self._compiled
        if self._stacks != wanted and not self.is_in_backward():
            self._stacks = wanted
            if self._running:
                self._turn_over()

    def is_in_backward(self) -> bool:
        """Whether the autograd engine is at work: it restores the profiler of its beginning when it ends, and another one is lost."""
        task = getattr(self._torch._C, "_current_graph_task_id", None)
        return task is not None and task() != -1

    def harvest(self) -> None:
        """After a step: takes over what the profiler has, if it is time to."""
        self._compiled = False
        self._adjust()
        if not self._running:
            self._resume()
        elif time.monotonic() - self._last > _HARVEST_SECONDS:
            self._turn_over()
        self.when_idle()

    def _turn_over(self) -> None:
        """Takes over what the profiler has, and starts it again; no tensor of the program is freed in between."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self._pause()
            self._run()
        finally:
            if collects:
                gc.enable()
        self.when_idle()

    def _resume(self) -> None:
        """Goes on after a profiler of the program's own, once no annotation is open that it may have seen begin."""
        if self._paused_at is None or self._theirs or any(reference() is not None for reference in self._annotations):
            return
        self.paused_seconds += time.monotonic() - self._paused_at
        self._paused_at = None
        self._annotations = []
        self._run()

    def _annotated(self) -> list[Any]:
        """Returns the annotations (``record_function``) there are, weakly; those of a profiler's own steps have ended with it."""
        kind = self._torch.autograd.profiler.record_function
        return [weakref.ref(each) for each in gc.get_objects() if type(each) is kind and not each.name.startswith("ProfilerStep#")]

    def _give_way(self) -> None:
        """Stops for as long as the program runs a profiler itself: there can be only one."""
        profiler = self._torch.autograd.profiler

        def away() -> None:
            self._theirs = True
            if self._running:
                warn("the program starts a profiler itself: CPU memory is not recorded while it runs")
                self._pause()
                self._paused_at = time.monotonic()

        def back() -> None:
            self._theirs = False
            if self.is_active and self._paused_at is not None:
                self._annotations = self._annotated()
                self._resume()

        for name, before, after in (
            ("_prepare_profiler", away, None),
            ("_enable_profiler", away, None),
            ("_disable_profiler", None, back),
        ):
            original = getattr(profiler, name, None)
            if original is not None:
                mine = _around(original, before, after)
                setattr(profiler, name, mine)
                self._replaced.append((name, mine, original))

    # ----------------------------------------------------------------------------------------------------------- events

    def _take(self, tree: Any) -> None:
        """Appends the allocations in the profiler's tree of events, in order of time."""
        found: list[tuple[int, int, int, int, Any]] = []
        todo: list[tuple[Any, Any]] = [(event, None) for event in reversed(list(tree))]
        while todo:
            event, outer = todo.pop()
            kind = event.tag.name
            if kind == "Allocation":
                fields = event.extra_fields
                if str(fields.device.type if hasattr(fields.device, "type") else fields.device) == "cpu" and fields.ptr:
                    found.append((event.start_time_ns, len(found), int(fields.ptr), int(fields.alloc_size), outer))
                continue
            if kind in {"PyCall", "PyCCall"}:
                outer = (event, outer)  # most calls allocate nothing: their frames are never asked for
            todo.extend((child, outer) for child in reversed(event.children))
        found.sort()  # those of several threads by time, those of one moment as they came
        lists: dict[int, _Frames] = {}
        for time_ns, _, addr, size, link in found:
            frames = lists.get(id(link))
            if frames is None:
                frames = lists[id(link)] = [self._frame(call.extra_fields.caller) for call in _unfold(link)]
            self._add(time_ns // 1000, addr, size, frames)

    def _frame(self, caller: Any) -> dict[str, Any]:
        try:
            key = (caller.file_name, caller.line_number, caller.function_name)
        except UnicodeDecodeError:  # the profiler keeps a pointer to names, and the code that had them is gone
            key = ("??", 0, "??")
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = {"filename": _absolute(key[0]), "line": key[1], "name": key[2]}
        return frame

    def _add(self, time_us: int, addr: int, size: int, frames: _Frames) -> None:
        if size > 0:
            for other, bytes_there in self._live.take(addr, size, frames):  # freed by another thread, or while nothing was recorded
                self.unseen_frees += 1
                self._append_free(time_us, other, bytes_there, [])
            self._allocs += 1
            self._entries.append({"action": "alloc", **_entry(time_us, addr, size, frames)})
        elif self._live.give_back(addr):
            self._append_free(time_us, addr, -size, frames)
        else:
            self.unknown_frees += 1

    def _append_free(self, time_us: int, addr: int, size: int, frames: _Frames) -> None:
        self._frees += 1
        entry = _entry(time_us, addr, size, frames)
        self._entries.append({"action": "free_requested", **entry})
        self._entries.append({"action": "free_completed", **entry})

    def snapshot(self) -> dict[str, Any] | None:
        """Returns the history in the format of PyTorch's snapshots; each allocation is a segment of one block."""
        if not self.is_active:
            return None
        if self._running:
            self._turn_over()
        segments = [_segment(addr, size, frames) for addr, size, frames in self._live]
        trace = _with_segments(self._entries)
        return {"segments": segments, "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}


def _entry(time_us: int, addr: int, size: int, frames: _Frames) -> dict[str, Any]:
    return {"addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": frames}


def _with_segments(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns entries with each block's segment: viewers that replay them want every block in a segment that was made before."""
    result = []
    for entry in entries:
        if entry["action"] == "alloc":
            result.append({**entry, "action": "segment_alloc"})
        result.append(entry)
        if entry["action"] == "free_completed":
            result.append({**entry, "action": "segment_free"})
    return result


def _absolute(filename: str) -> str:
    """Returns the whole path of a file: the profiler leaves out what sys.path has before it."""
    if os.path.isabs(filename) or filename.startswith("<"):
        return filename
    for folder in sys.path:
        path = os.path.join(os.path.abspath(folder), filename)
        if os.path.exists(path):
            return path
    return filename


def _around(original: Callable[..., Any], before: Callable[[], None] | None, after: Callable[[], None] | None) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            contained(before)()
        result = original(*args, **kwargs)
        if after is not None:
            contained(after)()
        return result

    return wrapped


def _unfold(link: Any) -> list[Any]:
    """Returns the calls of a chain, innermost first."""
    calls = []
    while link is not None:
        calls.append(link[0])
        link = link[1]
    return calls


def _segment(addr: int, size: int, frames: _Frames) -> dict[str, Any]:
    block = {"address": addr, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
    return {
        "device": 0, "address": addr, "total_size": size, "allocated_size": size, "active_size": size, "requested_size": size,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": [block],
    }  # fmt: skip
