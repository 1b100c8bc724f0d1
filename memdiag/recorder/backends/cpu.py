"""CPU: allocations of PyTorch's CPU allocator, from the memory events of PyTorch's profiler.

The profiler runs with everything else disabled. It records no operators or annotations (its scope is one that nothing
enters), only memory events, and Python calls for their stacks. It does not see memory outside PyTorch (NumPy, the
interpreter, oneDNN's scratch memory), allocations of other threads of the program, and events while the program runs a
profiler itself.

An operator or annotation that began under one profiler must not end under the next: PyTorch would write its end into
memory that was freed with the first profiler. memdiag's profiler sees none of these. After a profiler of the program,
memdiag waits.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..compiling import Compiling
from ..guard import contained, warn
from ..imports import Imports
from ..interrupts import held, is_in_profile_function
from ..marks import FORWARD, NOWHERE, Position
from ..texts import text_of
from .cpu_history import CpuHistory
from .cpu_stretches import SECONDS, Stretches
from .silence import Silence

_HARVEST_NS = 100_000_000  # interval of collecting the profiler's events: each takes 100 bytes or more
# share of events with known stacks at which calls are no longer reported, and below which they are again
_REPEATS, _CHANGES = 0.98, 0.95
_MANY_CALLS, _CALLS_PER_EVENT = 20_000, 500  # of a stretch after which calls are not reported
_MANY_EVENTS = 200  # of such a stretch, after which they are again


class Cpu:
    """The history of the CPU allocator."""

    name = "cpu"
    has_times = True

    def __init__(self) -> None:
        self.is_active = False
        self.paused_seconds = 0.0
        self._torch: Any = None
        self._running = False
        self._is_waiting = False  # for the window of steps
        self._history = CpuHistory()
        self._silence: Any = None
        self._last = 0  # nanoseconds since 1970, when the profiler started
        self._replaced: list[tuple[str, Any, Any]] = []
        self._paused_at: float | None = None
        self._theirs = False  # the program runs its own profiler
        self._annotations: list[Any] = []  # weak references to annotations whose beginning that profiler may have seen
        self._stacks = True
        self._loses_stacks = False  # whether events were lost because of that profiler
        self.lost_seconds = 0.0
        self._reasons = 0  # number of reasons not to record stacks
        self._compiled = False  # since the last step
        self._repeats = False  # nearly all events are those of earlier passes
        self._learns = False  # calls are reported until the passes end that are new
        self._has_many_calls = False  # and nearly no events, since the last mark
        self._reports_calls = False
        self._stretches = Stretches(contained(self._collect_stretch))
        self._thread = 0  # that is recorded
        light, full = (contained(lambda change=change: self._lighten(change)) for change in (1, -1))
        self._imports = Imports(light, full)
        self._compiling = Compiling(contained(self._compile), full)
        self.is_busy = False  # collecting events: a snapshot now would miss them
        self.when_idle: Callable[[], None] = lambda: None

    def is_alone(self, torch: Any) -> bool:
        """Returns whether no accelerator is expected, without initialising one."""
        if "torch_npu" in sys.modules:
            return False
        if torch.version.cuda is None and torch.version.hip is None:
            return True
        if os.environ.get("MEMDIAG_PHANTOM") or any(
            os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
        ):
            return os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        return True

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Starts immediately: the CPU is always available."""
        self._torch = torch
        started(self)

    def wait(self) -> None:
        """Tracks live blocks until ``start``, without stacks.

        PyTorch prints a line for a free of unknown size, so the size of every live block has to be known.
        """
        self._reasons += 1
        self._stacks = False
        self._install()
        self._is_waiting = True

    def start(self, max_events: int) -> None:
        """Starts recording."""
        if self._is_waiting:
            self._is_waiting = False
            if self._running:
                self._turn_over()  # earlier events are not kept
            self._history.keep(max_events)
            self.is_active = True
            self._lighten(-1)
            return
        self._history.keep(max_events)
        self.is_active = True
        self._install()

    def _install(self) -> None:
        self._thread = threading.get_ident()
        self._silence = Silence(self._torch)
        self._give_way()
        self._imports.install()
        self._compiling.install()
        self._run()
        self._stretches.start()

    def stop(self) -> None:
        """Stops recording."""
        self._imports.remove()
        self._compiling.remove()
        self._stretches.stop()
        self._pause()
        self.is_active = self._is_waiting = False
        profiler = self._torch.autograd.profiler
        for name, mine, original in self._replaced:
            if getattr(profiler, name, None) is mine:
                setattr(profiler, name, original)
        self._replaced = []

    def position(self) -> Position:
        """Returns no counts, since the profiler's events have times."""
        return NOWHERE

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Does nothing: the CPU allocator has no out-of-memory callback."""

    def facts(self) -> dict[str, Any]:
        """Returns the number of events that could not be recorded, and other facts."""
        return {
            "capacity_bytes": {},
            "counts": {0: {"allocs": self._history.allocs, "frees": self._history.frees, "retries": -1, "ooms": -1}},
            "fraction": None,
            "settings": {},
            "unknown_frees": self._history.unknown_frees,
            "unseen_frees": self._history.unseen_frees,
            "stacks_of_earlier_passes": self._history.passes.num_found,
            "outer_stacks": self._history.passes.num_outer,
            "paused_seconds": self.paused_seconds,
            "lost_seconds": self.lost_seconds,
        }

    # --------------------------------------------------------------------------------------------------------- profiler

    def _run(self) -> None:
        from torch._C._autograd import _enable_profiler, _prepare_profiler
        from torch._C._profiler import ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
        from torch.autograd import ProfilerActivity

        # Stacks come from Python's single profile function: if the program uses it (cProfile), it remains the
        # program's.
        calls = self._reports_calls = self._stacks and sys.getprofile() is None
        config = ProfilerConfig(ProfilerState.KINETO, False, True, calls, False, False, _ExperimentalConfig())
        with self._silence.kept():
            _prepare_profiler(config, {ProfilerActivity.CPU})
        with self._silence.kept():
            _enable_profiler(config, {ProfilerActivity.CPU}, {RecordScope.STATIC_RUNTIME_MODEL})
        self._running = True
        self._last = time.time_ns()

    def _pause(self) -> None:
        if not self._running:
            return
        from torch._C._autograd import _disable_profiler

        with held():
            self.is_busy = True  # set before pausing: a signal handler would find no events to collect
            self._running = False
            theirs = sys.getprofile()
            try:
                tree = self._tree(_disable_profiler)
                # A cProfile was started in the meantime: stopping our profiler removed it.
                if hasattr(theirs, "enable"):
                    theirs.enable()  # type: ignore[union-attr]
                self._history.take(tree, has_calls=self._reports_calls)
            finally:
                self.is_busy = False

    def _tree(self, disable: Callable[[], Any]) -> Any:
        """Stops the profiler; returns its events.

        In torch 2.1, events are lost if their calls began before the profiler.
        """
        try:
            with self._silence.kept():
                return disable().experimental_event_tree()
        except RuntimeError as error:
            self.lost_seconds += (time.time_ns() - self._last) / 1e9
            self._loses_stacks = True
            self._stacks = False
            warn(text_of("profiler.lost", error=str(error).split(",", 1)[0]))
            return ()

    def _lighten(self, change: int) -> None:
        """Records allocations without Python stacks while a large import or a compilation is running."""
        if threading.get_ident() != self._thread:  # another thread cannot stop this one's profiler
            return
        self._reasons = max(0, self._reasons + change)
        self._compiling.install()
        self._adjust()

    def _compile(self) -> None:
        """Something is being compiled; with gradients, its backward will be compiled in the next backward pass."""
        self._compiled = self._compiled or bool(self._torch.is_grad_enabled())
        self._lighten(1)

    def _adjust(self) -> None:
        wanted = self._wants_stacks()
        if self._stacks != wanted and not self.is_in_backward():
            self._stacks = wanted
            if self._running:
                self._turn_over()

    def _wants_stacks(self) -> bool:
        return not (self._reasons or self._compiled or self._loses_stacks or self._repeats or self._has_many_calls)

    def begin_pass(self, kind: int) -> None:
        """Ends a pass of the training and begins another one of a kind, in the caller's caller."""
        if self._running and threading.get_ident() == self._thread:
            passes = self._history.passes
            now = passes.begin(kind, sys._getframe(2))
            if kind == FORWARD:
                self._stretches.seconds = SECONDS
            if self._has_many_calls or (self._repeats and passes.is_new):
                self._learns = self._repeats and passes.is_try
                self._has_many_calls = self._repeats = False
                self._adjust()
            elif self._learns and not passes.goes_on_new and not self.is_in_backward():
                self._learns, self._repeats = False, True
                self._adjust()
            elif now - self._last > _HARVEST_NS and not self.is_in_backward():
                self._turn_over(self._look_for_repeats)

    def is_in_backward(self) -> bool:
        """Returns whether the autograd engine is running.

        At its end it restores the profiler that was active at its beginning, and a newer one is lost.
        """
        task = getattr(self._torch._C, "_current_graph_task_id", None)
        return task is not None and task() != -1

    def harvest(self) -> None:
        """Collects the profiler's events after a step, if the interval has passed."""
        self._compiled = False
        self._adjust()
        if not self._running:
            self._resume()
        elif time.time_ns() - self._last > _HARVEST_NS:
            self._turn_over(self._look_for_repeats)
        self.when_idle()

    def _look_for_repeats(self) -> None:
        """Decides whether the profiler has to report calls, or the training repeats passes whose stacks are known."""
        passes = self._history.passes
        if passes.share is not None and not self._learns:
            self._repeats = not passes.goes_on_new and passes.share >= (_CHANGES if self._repeats else _REPEATS)
            self._stacks = self._wants_stacks()

    def _collect_stretch(self) -> None:
        """Collects the events of a stretch without marks; the main thread runs this between any two bytecodes."""
        if not self._running or self._reasons or self._compiled or self.is_in_backward() or self.is_busy:
            return
        if not (self._reports_calls and is_in_profile_function()):
            self._turn_over(self._look_at_stretch)

    def _look_at_stretch(self) -> None:
        """Decides whether calls are reported in the next stretch."""
        num_calls, num_events = self._history.num_calls, self._history.num_taken
        if self._reports_calls:
            self._has_many_calls = num_calls > max(_MANY_CALLS, _CALLS_PER_EVENT * num_events)
        elif num_events > _MANY_EVENTS:
            self._has_many_calls = False
        self._stacks = self._wants_stacks()

    def _turn_over(self, meanwhile: Callable[[], Any] = lambda: None) -> Any:
        """Collects the profiler's events and restarts it; no tensor of the program is freed in between.

        Returns the result of ``meanwhile``, whose calls the profiler does not see.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            self._pause()
            try:
                found = meanwhile()
            finally:
                self._run()
        finally:
            if collects:
                gc.enable()
        self._stretches.collected()
        self.when_idle()
        return found

    def _resume(self) -> None:
        """Continues after a profiler of the program, once all annotations that it may have seen begin are closed."""
        if self._paused_at is None or self._theirs or any(reference() is not None for reference in self._annotations):
            return
        self.paused_seconds += time.monotonic() - self._paused_at
        self._paused_at = None
        self._annotations = []
        self._run()

    def _annotated(self) -> list[Any]:
        """Returns weak references to the open annotations (``record_function``), except a profiler's own steps."""
        kind = self._torch.autograd.profiler.record_function
        return [
            weakref.ref(each)
            for each in gc.get_objects()
            if type(each) is kind and not each.name.startswith("ProfilerStep#")
        ]

    def _give_way(self) -> None:
        """Pauses while the program runs its own profiler: only one can run at a time."""
        profiler = self._torch.autograd.profiler

        def away() -> None:
            self._theirs = True
            if self._running:
                warn(text_of("profiler.other"))
                self._pause()
                self._paused_at = time.monotonic()

        def back() -> None:
            self._theirs = False
            if self._paused_at is not None:
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

    def snapshot(self) -> dict[str, Any] | None:
        """Returns the history as a snapshot, or None without a recording."""
        if not self.is_active:
            return None
        content: dict[str, Any] = self._turn_over(self._history.content) if self._running else self._history.content()
        return content

    # Other backends count the entries of the snapshot.
    def num_events(self, content: dict[str, Any]) -> int:  # noqa: ARG002
        """Returns the number of events in a snapshot, without the segments that exist only for viewers."""
        return len(self._history)


def _around(
    original: Callable[..., Any], before: Callable[[], None] | None, after: Callable[[], None] | None
) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            contained(before)()
        result = original(*args, **kwargs)
        if after is not None:
            contained(after)()
        return result

    return wrapped
